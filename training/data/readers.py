"""Turns members of packages into documents of plain text, one function per format."""

from __future__ import annotations

import html
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator

from cleaning import acceptable_code, normalise, strip_licence_header, unwrap
from markup import html_to_markdown
from packages import text_of

Document = tuple[str, str]


def read_html(name: str, content: bytes) -> Iterator[Document]:
    """A page of documentation as Markdown."""
    yield name, normalise(html_to_markdown(text_of(name, content)))


def read_markdown(name: str, content: bytes) -> Iterator[Document]:
    """Markdown without its front matter, badges and links' targets."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text_of(name, content), flags=re.DOTALL)
    yield name, normalise(clean_markdown(text))


def clean_markdown(text: str) -> str:
    """Markdown without pictures, comments, tags and targets of links."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\[?!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])(?:\]\([^)]*\))?", "", text)
    text = re.sub(r"\[([^\]]+)\]\([^)\s]+(?: \"[^\"]*\")?\)", r"\1", text)
    text = re.sub(r"^\[[^\]]+\]:\s*\S+.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"</?(?:p|a|img|div|br|h\d|b|i|em|strong|center|sub|sup|table|tr|td|th|tbody|picture|source|details|summary)\b[^>]*>", "", text)
    return re.sub(r"\[([^\]]+)\]\[[^\]]*\]", r"\1", text)


def read_code(name: str, content: bytes) -> Iterator[Document]:
    """A source file without its licence header; README files as Markdown."""
    if len(content) > 10_000_000:
        return
    text = normalise(text_of(name, content))
    if name.endswith(".md"):
        yield name, normalise(clean_markdown(text))
        return
    if name.endswith("sqlite3.c"):
        # The amalgamation holds about 130 files, each between two markers.
        for part in re.split(r"/\*+ Begin file (?=[^*]+\*+/)", text)[1:]:
            title, _, body = part.partition("*")
            body = strip_licence_header(body.partition("/\n")[2])
            body = re.sub(r"/\*+ End of \S+ \*+/.*", "", body, flags=re.DOTALL)
            if acceptable_code(body):
                yield f"{name}/{title.strip()}", body
        return
    text = strip_licence_header(text)
    if acceptable_code(text):
        yield name, text


def _chapters(name: str, text: str, heading: str) -> Iterator[Document]:
    starts = [match.start() for match in re.finditer(heading, text, re.MULTILINE)] or [0]
    for index, (start, end) in enumerate(zip(starts, starts[1:] + [len(text)])):
        body = text[start:end].strip()
        for part_start in range(0, len(body), 30_000):
            cut_start = 0 if part_start == 0 else body.find("\n\n", part_start)
            cut_end = body.find("\n\n", part_start + 30_000)
            part = body[cut_start:cut_end if cut_end > 0 else len(body)].strip()
            if cut_start >= 0 and len(part) > 500:
                yield f"{name}#{index + 1}.{part_start // 30_000 + 1}", part


def read_wrapped_text(name: str, content: bytes) -> Iterator[Document]:
    """A book in plain text with hard-wrapped lines, split into chapters; Project Gutenberg's own notes are dropped."""
    text = normalise(text_of(name, content))
    text = re.sub(r"\A.*?\*\*\* ?START OF.*?\*\*\*", "", text, flags=re.DOTALL)
    text = re.sub(r"(?:End of (?:the )?Project Gutenberg|\*\*\* ?END OF).*\Z", "", text, flags=re.DOTALL)
    text = re.sub(r"_([^_]{1,600})_", r"\1", unwrap(text))
    yield from _chapters(name.rsplit("/", 1)[-1], text, r"^(?:CHAPTER|PROP\.|OBS\.|Chapter) ")


def _r_strings(data: bytes) -> Iterator[str]:
    """The character strings of R's serialized format (version 2 or 3): header word of type 9, length, bytes."""
    position = 0
    while True:
        position = data.find(b"\x00\x04\x00\x09", position)
        if position < 0 or position + 8 > len(data):
            return
        (length,) = struct.unpack(">i", data[position + 4:position + 8])
        if 0 <= length <= len(data) - position - 8:
            yield data[position + 8:position + 8 + length].decode("utf-8", "replace")
            position += 8 + length
        else:
            position += 4


def read_r_data(name: str, content: bytes) -> Iterator[Document]:
    """Novels kept as vectors of lines in an R package's lazy-load database of zlib streams."""
    position = 0
    while position + 4 < len(content):
        start = content.find(b"\x78", position)
        if start < 0:
            return
        try:
            inflater = zlib.decompressobj()
            data = inflater.decompress(content[start:]) + inflater.flush()
        except zlib.error:
            position = start + 1
            continue
        position = len(content) - len(inflater.unused_data)
        lines = list(_r_strings(data))
        if len(lines) < 2000:
            continue
        text = re.sub(r"_([^_\n]+)_", r"\1", normalise("\n".join(lines)))
        title = re.sub(r"\W+", "-", next(line for line in lines if line.strip()).lower()).strip("-")
        yield from _chapters(title, unwrap(text), r"^(?:CHAPTER|Chapter) ")


def read_jargon(name: str, content: bytes) -> Iterator[Document]:
    """Entries of the Jargon File in documents of about thirty."""
    text = normalise(text_of(name, content))
    entries = [unwrap(entry.strip()) for entry in re.split(r"\n(?=   :[^\n:]{1,40}:)", text)[1:] if 120 < len(entry) < 4000]
    entries = [re.sub(r"\A:([^:]+):.*?(?:\n|\Z)", r"**\1**\n", re.sub(r"\{+([^}]*)\}+", r"\1", entry), count=1) for entry in entries]
    entries = [entry for entry in entries if not _COARSE.search(entry) and "http" not in entry]
    for index in range(0, len(entries), 30):
        yield f"{name}#{index // 30 + 1}", "\n\n".join(entries[index:index + 30])


def read_wordnet(name: str, content: bytes) -> Iterator[Document]:
    """Glosses with an example sentence, as `word: meaning. "Example."`, in documents of sixty."""
    lines: list[str] = []
    for line in text_of(name, content).splitlines():
        fields, separator, gloss = line.partition(" | ")
        if line.startswith("  ") or not separator or '"' not in gloss:
            continue
        word = fields.split()[4].replace("_", " ")
        word = re.sub(r"\([a-z]+\)$", "", word)
        meaning, _, examples = gloss.partition('"')
        meaning = meaning.strip().rstrip(";").strip()
        example = examples.partition('"')[0].strip()
        if not meaning or not example or _COARSE.search(gloss) or len(gloss) > 240:
            continue
        lines.append(f'{word}: {meaning}. Example: "{example}"')
    for index in range(0, len(lines), 60):
        yield f"{name.rsplit('/', 1)[-1]}#{index // 60 + 1}", "\n\n".join(lines[index:index + 60])


def _factbook_items(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "text" and isinstance(inner, str):
                yield path, inner
            elif "note" not in key:
                yield from _factbook_items(inner, (*path, key.strip()))


def read_factbook(name: str, content: bytes) -> Iterator[Document]:
    """The passages in words about one country; figures are left out."""
    record = json.loads(text_of(name, content))
    country = ""
    parts: list[str] = []
    for path, raw in _factbook_items(record, ()):
        text = html.unescape(re.sub(r"<[^>]+>", " ", raw))
        text = re.sub(r"\s+", " ", re.sub(r"\((?:20\d\d|19\d\d)[^)]*\)", "", text)).strip()
        if path[-1] == "conventional short form":
            country = country or text
        letters = sum(character.isalpha() for character in text)
        if len(text) > 90 and letters > 0.72 * len(text) and ";" not in text[:40] and not re.search(r"percent of|Office|Ambassador|chancery|FAX", text):
            titles = [title for title in path[1:] if title != "conventional short form"]
            parts.append(f"## {': '.join(titles[-2:])}\n\n{text}")
    if country and country != "none" and parts:
        yield name.rsplit("/", 1)[-1], normalise(f"# {country}\n\n" + "\n\n".join(parts))


_COARSE = re.compile(
    r"\b(?:f+u+c+k\w*|mother\s?f\w*|sh[i1]t\w*|bull\s?shit|bitch\w*|bastard\w*|cunt\w*|dick(?:s|head)?|cock(?:s|sucker)?|puss(?:y|ies)|asshole\w*|ass|arse\w*|"
    r"whore\w*|slut\w*|nigg\w+|negro\w*|fag\w*|dyke\w*|tranny|retard\w*|kike\w*|spic|chink\w*|gook\w*|wetback\w*|rape\w*|rapist\w*|porn\w*|sex|sexy|sexual\w*|"
    r"nude\w*|naked|boobs?|tits|penis|vagina|horny|orgasm\w*|masturbat\w*|suicid\w*|kill (?:your|my)self|kys|nazi\w*|hitler|idiot\w*|moron\w*|stupid|dumb\w*|"
    r"loser|shut up|hate you|stfu|wtf|crap\w*|damn\w*|piss\w*|hell|screw you|drunk|weed|cocaine|heroin|terrorist\w*|jew|jews|muslims?|trump|obama|"
    r"hillary|gay|lesbian\w*|homo|abortion\w*|molest\w*|incest|pedo\w*|lmf?ao)\b", re.IGNORECASE)
_PERSONAL = re.compile(r"@|https?:|www\.|\.com\b|\d{5,}|\bsnap(?:chat)?\b|\bphone number\b|\binsta(?:gram)?\b|\bchatbot\b|\bthis (?:app|site|website|game|experiment)\b|\bturk|\beve\b|\b(?:ai|bot|bots)\b|\bpoints\b|\bleaderboard\b", re.IGNORECASE)
_CONTRACTIONS = {
    "im": "I'm", "ive": "I've", "dont": "don't", "doesnt": "doesn't", "didnt": "didn't", "cant": "can't", "wont": "won't", "isnt": "isn't",
    "arent": "aren't", "wasnt": "wasn't", "wouldnt": "wouldn't", "couldnt": "couldn't", "shouldnt": "shouldn't", "thats": "that's", "whats": "what's",
    "youre": "you're", "theyre": "they're", "hes": "he's", "shes": "she's", "havent": "haven't", "hasnt": "hasn't", "i": "I", "u": "you", "ur": "your",
    "i'm": "I'm", "i've": "I've", "i'll": "I'll", "i'd": "I'd", "r": "are", "pls": "please", "bc": "because", "thx": "thanks", "tho": "though",
    "idk": "I don't know", "btw": "by the way",
}


def _tidy_utterance(text: str) -> str:
    """Spelling of common contractions, a capital letter at the start, a mark at the end."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\b[A-Za-z']+\b", lambda match: _CONTRACTIONS.get(match[0].lower(), match[0]) if match[0].islower() or match[0] == "Im" else match[0], text)
    text = re.sub(r"([!?.])\1{2,}", r"\1", text)
    text = re.sub(r"(?<=[.!?] )[a-z]", lambda match: match[0].upper(), text)
    if not text:
        return ""
    text = text[0].upper() + text[1:]
    if text[-1].isalnum():
        question = re.match(r"(?:what|who|where|when|why|how|do|does|did|is|are|was|were|can|could|would|will|have|has)\b", text, re.IGNORECASE)
        text += "?" if question else "."
    return text


def read_chitchat(name: str, content: bytes) -> Iterator[Document]:
    """Conversations of two people as lines `A: ...` and `B: ...`; those with coarse or personal content are left out."""
    for identifier, record in json.loads(content).items():
        turns: list[tuple[str, str]] = []
        for messages in record["messages"]:
            for message in messages:
                text = _tidy_utterance(normalise(message["text"]))
                if not text:
                    continue
                if turns and turns[-1][0] == message["sender"]:
                    turns[-1] = (turns[-1][0], turns[-1][1] + " " + text)
                else:
                    turns.append((message["sender"], text))
        whole = "\n".join(text for _, text in turns)
        senders = list(dict.fromkeys(sender for sender, _ in turns))
        if len(senders) != 2 or len(turns) < 6 or _COARSE.search(whole) or _PERSONAL.search(whole):
            continue
        words = len(whole.split()) / len(turns)
        if words < 6 or not whole.isascii():
            continue
        yield identifier, "\n".join(f"{'AB'[senders.index(sender)]}: {text}" for sender, text in turns)


def read_chatterbot(name: str, content: bytes) -> Iterator[Document]:
    """Question and answer pairs of a YAML file of the form `- - question` / `  - answer`."""
    pairs: list[list[str]] = []
    for line in text_of(name, content).splitlines():
        match = re.match(r"(- - |  - )(.*)$", line)
        if not match:
            continue
        text = match[2].strip().strip("'\"").replace("''", "'")
        if match[1] == "- - ":
            pairs.append([text])
        elif pairs:
            pairs[-1].append(text)
    kept = [normalise("A: " + _tidy_utterance(pair[0]) + "\n" + "\n".join("B: " + _tidy_utterance(answer) for answer in pair[1:2]))
            for pair in pairs if len(pair) >= 2 and pair[0] and pair[1] and not _COARSE.search(" ".join(pair))]
    for index in range(0, len(kept), 12):
        yield f"{name.rsplit('/', 1)[-1]}#{index // 12 + 1}", "\n\n".join(kept[index:index + 12])


READERS: dict[str, Callable[[str, bytes], Iterator[Document]]] = {
    "html": read_html, "markdown": read_markdown, "code": read_code, "wrapped-text": read_wrapped_text, "r-data": read_r_data,
    "jargon": read_jargon, "wordnet": read_wordnet, "factbook": read_factbook, "chitchat": read_chitchat, "chatterbot": read_chatterbot,
}
