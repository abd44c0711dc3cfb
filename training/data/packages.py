"""Fetches packages with the registries' ordinary clients, reads their members and checks their licences."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sources import Source


class PackageError(RuntimeError):
    """A package could not be fetched, or its licence is not the one that was stated."""


@dataclass(frozen=True)
class Archive:
    """A fetched package: its file, version and digest."""

    path: Path
    version: str
    sha256: str


def fetch(source: Source, folder: Path, version: str | None) -> Archive:
    """The archive of `source`, downloaded into `folder` unless it is there; `version` None takes the current one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = {"debian": _fetch_debian, "pypi": _fetch_pypi, "npm": _fetch_npm, "crates.io": _fetch_crate}[source.origin](
        source.package, folder, version)
    return Archive(path, _version_of(source, path), hashlib.sha256(path.read_bytes()).hexdigest())


def _run(command: list[str], folder: Path) -> None:
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise PackageError(f"{' '.join(command)}: {finished.stderr.strip()[-500:]}")


def _present(folder: Path, pattern: str) -> Path | None:
    found = sorted(path for path in folder.iterdir() if re.fullmatch(pattern, path.name, re.IGNORECASE))
    return found[-1] if found else None


def _require(path: Path | None, package: str) -> Path:
    if path is None:
        raise PackageError(f"{package}: the client reported success but left no archive")
    return path


def _fetch_debian(package: str, folder: Path, version: str | None) -> Path:
    # Debian serves one version of a release at a time, so a recorded one is only a preference.
    pattern = re.escape(package) + r"_[^_]+_\w+\.deb"
    if _present(folder, pattern) is None:
        _run(["apt-get", "download", package], folder)
    return _require(_present(folder, pattern), package)


def _fetch_pypi(package: str, folder: Path, version: str | None) -> Path:
    name = re.sub(r"[-_.]+", "[-_.]", package)
    pattern = rf"{name}-{re.escape(version) if version else r'[0-9][^-]*'}-.*\.whl"
    if _present(folder, pattern) is None:
        wanted = f"{package}=={version}" if version else package
        _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", ".", wanted], folder)
    return _require(_present(folder, pattern), package)


def _fetch_npm(package: str, folder: Path, version: str | None) -> Path:
    pattern = rf"{re.escape(package)}-{re.escape(version) if version else r'[0-9].*'}\.tgz"
    if _present(folder, pattern) is None:
        _run(["npm", "pack", "--silent", f"{package}@{version}" if version else package], folder)
    return _require(_present(folder, pattern), package)


def _fetch_crate(package: str, folder: Path, version: str | None) -> Path:
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    pattern = rf"{re.escape(package)}-{re.escape(version) if version else r'[0-9].*'}\.crate"

    def cached() -> Path | None:
        found = [path for registry in (home / "registry/cache").glob("*") for path in [_present(registry, pattern)] if path]
        return found[-1] if found else None

    if cached() is None:
        with tempfile.TemporaryDirectory() as temporary:
            project = Path(temporary)
            wanted = f"={version}" if version else "*"
            project.joinpath("Cargo.toml").write_text(
                f'[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n{package} = "{wanted}"\n')
            project.joinpath("src").mkdir()
            project.joinpath("src/lib.rs").write_text("")
            _run(["cargo", "fetch", "--quiet"], project)
    return _require(cached(), package)


def _version_of(source: Source, path: Path) -> str:
    name = path.name
    if source.origin == "debian":
        return name.split("_")[1].replace("%3a", ":")
    if source.origin == "pypi":
        return name.split("-")[1]
    suffix = ".crate" if source.origin == "crates.io" else ".tgz"
    return name.removeprefix(source.package + "-").removesuffix(suffix)


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of every regular file in an archive, in order of their paths for the formats that have an index."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            for name in sorted(opened.namelist()):
                if not name.endswith("/"):
                    yield name, opened.read(name)
        return
    if archive.suffix == ".deb":
        process = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(archive)], capture_output=True, check=True)
        stream = tarfile.open(fileobj=io.BytesIO(process.stdout))
    else:
        stream = tarfile.open(archive)
    with stream:
        for member in stream:
            if member.isfile():
                opened_file = stream.extractfile(member)
                if opened_file is not None:
                    yield member.name.removeprefix("./"), opened_file.read()


def text_of(name: str, content: bytes) -> str:
    """The text of a member; `.gz` members are unpacked, bytes that are not UTF-8 are read as Latin-1."""
    if name.endswith(".gz"):
        content = gzip.decompress(content)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


_LICENCE_MEMBERS = {
    "debian": re.compile(r"usr/share/doc/[^/]+/copyright$"),
    "pypi": re.compile(r"\.dist-info/METADATA$"),
    "npm": re.compile(r"^package/package\.json$"),
    "crates.io": re.compile(r"^[^/]+/Cargo\.toml$"),
}
_COPYLEFT_ONLY = re.compile(r"GPL|AGPL|MPL|CC-BY-(?:SA|NC)|BUSL|Commons Clause", re.IGNORECASE)


def licence_statement(source: Source, name: str, content: bytes) -> str | None:
    """What the member `name` says about the licence, or None when it is not the file that states it."""
    if not _LICENCE_MEMBERS[source.origin].search(name):
        return None
    text = text_of(name, content)
    if source.origin == "pypi":
        lines = [line for line in text.split("\n\n")[0].splitlines()
                 if line.startswith(("License:", "License-Expression:", "Classifier: License"))]
        return "\n".join(lines)
    if source.origin == "npm":
        stated = json.loads(text)
        return json.dumps(stated.get("license", stated.get("licenses", "")))
    if source.origin == "crates.io":
        return "\n".join(re.findall(r"^license\s*=.*$", text, re.MULTILINE))
    return text


def check_licence(source: Source, statement: str | None, archive: Path) -> None:
    """Raises unless the archive states the licence that `source` names.

    A Debian copyright file lists the licences of all files of the source package, build scripts included, so there
    only the expected licence is searched for; the other registries state one licence for the package.
    """
    if statement is None:
        # Packages built from one source share a documentation folder by a symbolic link; the member is then elsewhere.
        statement = _installed_copyright(source, archive)
    if not re.search(source.licence_evidence, statement):
        raise PackageError(f"{source.name}: licence {source.licence} not found in its metadata ({statement[:200]!r})")
    if source.origin != "debian" and _COPYLEFT_ONLY.search(statement) and not re.search(r"\bOR\b|/", statement):
        raise PackageError(f"{source.name}: the metadata names a licence that is not permissive ({statement[:200]!r})")


def _installed_copyright(source: Source, archive: Path) -> str:
    """The copyright file that a Debian package shares with a package that it depends on."""
    if source.origin != "debian":
        return ""
    with tarfile.open(fileobj=io.BytesIO(subprocess.run(["dpkg-deb", "--fsys-tarfile", str(archive)],
                                                        capture_output=True, check=True).stdout)) as stream:
        for member in stream:
            if member.issym() and f"usr/share/doc/{source.package}" == member.name.removeprefix("./"):
                shared = Path(member.linkname).name
                neighbour = _fetch_debian(shared, archive.parent, None)
                for name, content in members(neighbour):
                    if _LICENCE_MEMBERS["debian"].search(name):
                        return text_of(name, content)
    return ""
