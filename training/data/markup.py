"""HTML to Markdown, for pages of documentation.

The result keeps headings, paragraphs, lists, code blocks (fenced, with their language) and small tables of words;
navigation, scripts, footers, anchors and pictures are dropped.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

# Where the text of a page begins, by generator: Sphinx, mdBook, rustdoc, Node.js, Apache httpd, others.
_CONTENT_START = re.compile(
    r'<(?:div|section|main|article)[^>]*(?:role="main"|id="(?:main-content|page-content|apicontent|preamble)"|itemprop="articleBody")'
    r'|<main\b|<article\b|<div class="(?:body|docsource|book-summary|chapter|sect1|refentry)"'
)
_SKIPPED_TAGS = frozenset(
    "script style nav footer svg button form aside select noscript head math iframe template input label".split())
_SKIPPED_CLASS = re.compile(
    r"(?:^|\s)(?:headerlink|sphinxsidebar\S*|navheader|navfooter|toctree-wrapper|toc|contents|topic|related|viewcode-link|footer|"
    r"prev-next\S*|nav-wrapper|sidebar|breadcrumb\S*|mobile-nav-chapters|nav-chapters|srclink|src|since|out-of-band|rightside|"
    r"clearer|footnote|fn-footnotes|langs|top|bottom|sphx-glr-(?:timing|footer|thumb\S*|download\S*|signature|script-out|animation)|"
    r"reference-note|api_stability|mark|type_signature|anchor|example-wrap-tooltip|tooltip|gde-nav|doc-anchor|rustdoc-breadcrumbs|impl-items-hidden|"
    r"menu|fancy_toc|startsearch|searchmenu|nosearch|hd_tmenu|desktoponly|mobileonly|copyright|admonition-todo|versionmodified-hidden|linenos|linenodiv|boring)(?:\s|$)")
_SKIPPED_ID = re.compile(r"^(?:toc|table-of-contents|contents|local-toc|footer|comments_section|quickview|synthetic-implementations\S*|"
                         r"blanket-implementations\S*|trait-implementations\S*|implementors\S*|gtoc|alt-docs)$")
_BLOCKS = frozenset("p div section article main dd dt ul ol dl blockquote h1 h2 h3 h4 h5 h6 li table tr td th figure figcaption details summary hr center".split())
_VOID = frozenset("br hr img input meta link col area base embed source wbr".split())
_LANGUAGE = re.compile(r"(?:highlight-|language-|lang-|brush:\s*)(\w+)")
_LANGUAGE_NAMES = {"python3": "python", "pycon": "python", "default": "python", "ipython": "python", "ipython3": "python", "pycon3": "python",
                   "js": "javascript", "cjs": "javascript", "mjs": "javascript", "console": "shell", "bash": "shell", "sh": "shell",
                   "none": "", "text": "", "plain": "", "noplaypen": "", "plaintext": "", "doscon": "", "txt": "", "fallback": ""}
_HIGHLIGHT = re.compile(r'<span class="(?:[a-z]{1,3}[0-9]?|pre|sig-\w+(?: \w+)*|kwd?|macro|comment|string|number|ident|op|lifetime|fn|struct|trait|enum)">([^<]*)</span>')
_SPACE = re.compile(r"\s+")


class _Page(HTMLParser):
    """Collects the blocks of one page while the parser walks over it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self.inline: list[str] = []
        self.prefix = ""
        self.lists: list[list[int | str]] = []
        self.skipped_tag: str | None = None
        self.skipped_depth = 0
        self.preformatted = 0
        self.language = ""
        self.table_depth = 0
        self.rows: list[list[str]] = []
        self.in_code: str | None = None

    def updatepos(self, i: int, j: int) -> int:
        """Positions of lines are not needed; keeping them would cost a tenth of the time."""
        return j

    def flush(self) -> None:
        """Ends the current paragraph."""
        text = _SPACE.sub(" ", "".join(self.inline)).strip()
        self.inline = []
        if not text:
            return
        if self.table_depth:
            if self.rows and self.rows[-1]:
                self.rows[-1][-1] = (self.rows[-1][-1] + " " + text).strip()
            return
        self.blocks.append(self.prefix + text)
        if self.prefix.lstrip().startswith(("-", "1", "2", "3", "4", "5", "6", "7", "8", "9")):
            self.prefix = " " * len(self.prefix)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.skipped_tag is not None:
            if tag == self.skipped_tag:
                self.skipped_depth += 1
            return
        attributes = dict(attrs)
        classes = attributes.get("class") or ""
        if tag not in _VOID and (tag in _SKIPPED_TAGS or _SKIPPED_CLASS.search(classes)
                                 or _SKIPPED_ID.match(attributes.get("id") or "")):
            self.skipped_tag, self.skipped_depth = tag, 1
            return
        found = _LANGUAGE.search(classes)
        if found:
            self.language = _LANGUAGE_NAMES.get(found[1], found[1])
        elif tag == "pre":
            if "rust" in classes:
                self.language = "rust"
            elif re.search(r"programlisting|synopsis", classes):
                self.language = "sql"
            elif re.search(r"screen", classes):
                self.language = ""
        if self.preformatted:
            if tag == "br":
                self.inline.append("\n")
            elif tag == "pre":
                self.preformatted += 1
            return
        if tag in _BLOCKS:
            self.flush()
        self._open(tag, classes)

    def _open(self, tag: str, classes: str) -> None:
        if tag == "pre":
            self.flush()
            self.preformatted = 1
        elif tag in ("ul", "ol"):
            self.lists.append([tag, 0])
        elif tag == "li" and self.lists:
            kind, count = self.lists[-1]
            self.lists[-1][1] = int(count) + 1
            indent = "  " * (len(self.lists) - 1)
            self.prefix = f"{indent}- " if kind == "ul" else f"{indent}{int(count) + 1}. "
        elif len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self.prefix = "#" * min(int(tag[1]), 4) + " "
        elif tag == "table":
            self.table_depth += 1
            if self.table_depth == 1:
                self.rows = []
        elif tag == "tr" and self.table_depth == 1:
            self.rows.append([])
        elif tag in ("td", "th") and self.table_depth == 1 and self.rows:
            self.rows[-1].append("")
        elif tag == "code" or (tag in ("tt", "span") and "literal" in classes) or tag == "tt":
            if self.in_code is None:
                self.inline.append("`")
                self.in_code = tag
        elif tag == "dt" and classes.startswith("sig") and self.in_code is None:
            self.inline.append("`")
            self.in_code = tag
        elif tag == "br":
            self.inline.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if self.skipped_tag is not None:
            if tag == self.skipped_tag:
                self.skipped_depth -= 1
                if self.skipped_depth == 0:
                    self.skipped_tag = None
            return
        if self.preformatted:
            if tag == "pre":
                self.preformatted -= 1
                if self.preformatted == 0:
                    self._end_preformatted()
            return
        if self.in_code == tag:
            self.inline.append("`")
            self.in_code = None
        if tag in _BLOCKS:
            self.flush()
        if tag in ("ul", "ol") and self.lists:
            self.lists.pop()
            self.prefix = "  " * len(self.lists)
        elif tag == "li":
            self.prefix = "  " * max(len(self.lists) - 1, 0)
        elif len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self.prefix = ""
        elif tag == "table" and self.table_depth:
            self.table_depth -= 1
            if self.table_depth == 0:
                self._end_table()

    def _end_preformatted(self) -> None:
        text = "".join(self.inline).strip("\n")
        self.inline = []
        text = "\n".join(line.rstrip() for line in text.splitlines())
        if not text.strip():
            return
        if self.table_depth:
            if self.rows and self.rows[-1] and len(text) < 80:
                self.rows[-1][-1] += " " + " ".join(text.split())
            return
        self.blocks.append(f"```{self.language}\n{text}\n```")

    def _end_table(self) -> None:
        rows = [row for row in self.rows if any(row)]
        self.rows = []
        if not rows:
            return
        width = max(len(row) for row in rows)
        text = "\n".join("| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in rows)
        letters = sum(character.isalpha() for character in text)
        if width == 1:
            self.blocks.extend(row[0] for row in rows if len(row[0]) < 2000)
        elif width <= 4 and 2 <= len(rows) <= 30 and len(text) < 3000 and letters > 0.5 * len(text):
            head, *rest = text.split("\n")
            self.blocks.append("\n".join([head, "|" + " --- |" * width, *rest]))

    def handle_data(self, data: str) -> None:
        if self.skipped_tag is None:
            self.inline.append(data)


def html_to_markdown(page: str) -> str:
    """The text of an HTML page as Markdown, blocks separated by empty lines (items of a list by one newline)."""
    start = _CONTENT_START.search(page)
    if start:
        page = page[start.start():]
    else:
        body = page.find("<body")
        page = page[body:] if body >= 0 else page
    # Most tags of such pages are spans around single words of highlighted code, which only cost time.
    page = _HIGHLIGHT.sub(r"\1", page)
    parser = _Page()
    parser.feed(page)
    parser.close()
    parser.flush()
    pieces: list[str] = []
    previous_is_item = False
    for block in parser.blocks:
        block = block.replace("\u00b6", "").replace("``", "`") if not block.startswith("```") else block.replace("\u00b6", "")
        if not block.strip():
            continue
        is_item = bool(re.match(r"\s*(?:- |\d+\. )", block))
        if pieces:
            pieces.append("\n" if is_item and previous_is_item else "\n\n")
        pieces.append(block.rstrip())
        previous_is_item = is_item
    return "".join(pieces)
