"""Prepares the training text: downloads packages, extracts and cleans their text, splits it and records what it is.

    python3 training/data/prepare.py --output FOLDER

writes `documents.train.jsonl.xz` and `documents.heldout.jsonl.xz` into FOLDER, one JSON object `{"source", "name",
"text"}` per line, and `manifest.json` beside this file. It needs network access to the package registries and the
clients `apt-get`, `dpkg-deb`, `pip`, `npm` and `cargo`. Archives are kept in FOLDER/archives and not fetched twice.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cleaning import Duplicates
from packages import Archive, PackageError, check_licence, fetch, licence_statement, members
from readers import READERS
from sources import CODE, SOURCES, Source

HELD_OUT_SHARE = 50          # one document in fifty
HELD_OUT_LIMIT = 400_000     # bytes per source
TRAIN_LIMIT = 16_000_000     # bytes of the compressed train file (below 16 MiB)
MANIFEST = Path(__file__).with_name("manifest.json")

Line = dict[str, str]


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def is_held_out(source: str, name: str) -> bool:
    """Whether a document is kept out of training, by a hash of its name alone."""
    return _digest(f"{source}/{name}") % HELD_OUT_SHARE == 0


def extract(source: Source, archive: Archive) -> list[tuple[str, str]]:
    """Documents of one source, uncleaned of duplicates, by a hash of their names, half as much again as will be kept."""
    read = READERS[source.reader]
    chosen: list[tuple[str, bytes]] = []
    statement: str | None = None
    include, exclude = re.compile(source.include), re.compile(source.exclude)
    for name, content in members(archive.path):
        found = licence_statement(source, name, content)
        if found and statement is None:
            statement = found
        if include.search(name) and not exclude.search(name):
            chosen.append((name, content))
    check_licence(source, statement, archive.path)
    documents: list[tuple[str, str]] = []
    size = 0
    for name, content in sorted(chosen, key=lambda member: _digest(member[0])):
        found_here = [document for document in read(name, content) if document[1]]
        documents.extend(found_here)
        size += sum(len(text) for _, text in found_here)
        if size > 1.5 * source.limit:
            break
    return documents


def select(source: Source, documents: list[tuple[str, str]], duplicates: Duplicates) -> list[Line]:
    """Drops duplicates and keeps documents up to the source's limit, evenly over the source (by hash of the name)."""
    kept: list[Line] = []
    size = 0
    for name, text in sorted(documents, key=lambda document: _digest(document[0])):
        if size + len(text.encode()) > source.limit:
            continue
        cleaned = duplicates.filter_code(text) if source.kind == CODE and not name.endswith(".md") else duplicates.filter_documentation(text)
        if cleaned is None:
            continue
        size += len(cleaned.encode())
        kept.append({"source": source.name, "name": name, "text": cleaned})
    kept.sort(key=lambda line: line["name"])
    return kept


def split(lines: list[Line]) -> tuple[list[Line], list[Line]]:
    """Train and held-out documents of one source; held-out documents past the limit are dropped, not trained on."""
    train: list[Line] = []
    held_out: list[Line] = []
    size = 0
    for line in lines:
        if not is_held_out(line["source"], line["name"]):
            train.append(line)
        elif size + len(line["text"].encode()) <= HELD_OUT_LIMIT:
            held_out.append(line)
            size += len(line["text"].encode())
    return train, held_out


def compressed(lines: list[Line]) -> bytes:
    """The JSON lines as an xz stream."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)


def trim(train: dict[str, list[Line]], limit: int) -> bytes:
    """Compresses the train documents; while they exceed `limit`, drops documents of the largest source."""
    while True:
        data = compressed([line for lines in train.values() for line in lines])
        print(f"train file: {len(data)} bytes compressed", file=sys.stderr)
        if len(data) <= limit:
            return data
        total = sum(len(line["text"]) for lines in train.values() for line in lines)
        excess = int(1.02 * total * (len(data) - limit) / len(data)) + 10_000
        while excess > 0:
            largest = max(train, key=lambda name: sum(len(line["text"]) for line in train[name]))
            victim = max(train[largest], key=lambda line: _digest(line["name"] + "/trim"))
            train[largest].remove(victim)
            excess -= len(victim["text"])


def _recorded_versions() -> dict[str, str]:
    if not MANIFEST.exists():
        return {}
    return {entry["source"]: entry["version"] for entry in json.loads(MANIFEST.read_text())["sources"]}


def _gather(source: Source, folder: Path, version: str | None) -> tuple[Archive, list[tuple[str, str]]] | PackageError:
    try:
        archive = fetch(source, folder, version)
        return archive, extract(source, archive)
    except PackageError as error:
        return error


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the documents and the fetched archives")
    parser.add_argument("--only", help="regular expression: only sources with such names (for trying out; writes no manifest)")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    output: Path = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    versions = _recorded_versions()
    chosen = [source for source in SOURCES if not arguments.only or re.search(arguments.only, source.name)]
    duplicates = Duplicates()
    train: dict[str, list[Line]] = {}
    held_out: list[Line] = []
    archives: dict[str, Archive] = {}
    failures: list[str] = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        pending = [pool.submit(_gather, source, output / "archives", source.version or versions.get(source.name)) for source in chosen]
        for source, future in zip(chosen, pending):
            result = future.result()
            if isinstance(result, PackageError):
                failures.append(str(result))
                print(f"FAILED {result}", file=sys.stderr)
                continue
            archives[source.name], documents = result
            kept, kept_out = split(select(source, documents, duplicates))
            train[source.name] = kept
            held_out.extend(kept_out)
            print(f"{source.name:32} {len(documents):5} found {len(kept):5} kept {sum(len(line['text']) for line in kept) / 1e6:7.3f} MB",
                  file=sys.stderr, flush=True)
    data = trim(train, TRAIN_LIMIT)
    output.joinpath("documents.train.jsonl.xz").write_bytes(data)
    output.joinpath("documents.heldout.jsonl.xz").write_bytes(compressed(held_out))
    if not arguments.only:
        MANIFEST.write_text(one_source_a_line(manifest(chosen, archives, train, held_out, len(data))))
    if failures:
        print("\n".join(["not prepared:", *failures]), file=sys.stderr)
    return 1 if failures else 0


def manifest(chosen: list[Source], archives: dict[str, Archive], train: dict[str, list[Line]], held_out: list[Line],
             compressed_bytes: int) -> dict[str, object]:
    """What the text is made of: per source its package, licence, archive digest and sizes."""
    entries = []
    for source in chosen:
        if source.name not in archives:
            continue
        kept = [line for line in held_out if line["source"] == source.name]
        entries.append({
            "source": source.name, "kind": source.kind, "from": source.origin, "package": source.package,
            "version": archives[source.name].version, "licence": source.licence, "archive_sha256": archives[source.name].sha256,
            "train_bytes": sum(len(line["text"].encode()) for line in train[source.name]), "train_documents": len(train[source.name]),
            "held_out_bytes": sum(len(line["text"].encode()) for line in kept), "held_out_documents": len(kept),
        })
    totals: dict[str, int] = {}
    for entry in entries:
        totals[str(entry["kind"])] = totals.get(str(entry["kind"]), 0) + int(str(entry["train_bytes"]))
    return {"train_bytes": sum(totals.values()), "train_bytes_by_kind": totals, "train_file_compressed_bytes": compressed_bytes, "sources": entries}


def one_source_a_line(content: dict[str, object]) -> str:
    """A manifest as JSON, which a person can read and search by lines."""
    return json.dumps(content).replace('{"source": ', '\n{"source": ') + "\n"


if __name__ == "__main__":
    sys.exit(main())
