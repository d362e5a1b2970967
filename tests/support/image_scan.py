"""A search in all layers of an image, its configuration and its history, and what of this machine must not be there."""

from __future__ import annotations

import base64
import io
import os
import re
import ssl
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from tests.support.docker_engine import Engine

PUBLIC_HOSTS = {"pypi.org", "files.pythonhosted.org", "deb.debian.org", "security.debian.org"}
"""Hosts that packages themselves name."""

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\n(.+?)-----END CERTIFICATE-----", re.DOTALL)
_LINE = 64
_DEBIANS = Path("/usr/share/ca-certificates")


def places(engine: Engine, image: str, wanted: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Return where an image has some bytes.

    Args:
        wanted: Name → bytes.

    Returns:
        Name → the files that have them, with their layer; only of those that are found.
    """
    found: dict[str, list[str]] = {}
    for path, content in _files(engine, image):
        for name, text in wanted.items():
            if text in content or text in path.encode():
                found.setdefault(name, []).append(path)
    return found


def settings_of_this_machine() -> dict[str, bytes]:
    """Return what tells that an image was built here: hosts of proxies and package indexes, own authorities."""
    hosts = {host for text in _addresses() if (host := urlsplit(text).hostname)} - PUBLIC_HOSTS
    authorities = _certificates([Path(ssl.get_default_verify_paths().openssl_cafile)]) - _certificates(
        _DEBIANS.rglob("*.crt")
    )
    return {
        **{f"host {host}": host.encode() for host in hosts},
        **{f"authority {text[:20]} (PEM)": _line_of_signature(text) for text in authorities},
        **{f"authority {text[:20]} (DER)": base64.b64decode(text) for text in authorities},
    }


def _addresses() -> Iterator[str]:
    yield from (os.environ[name] for name in _PROXIES if name in os.environ)
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    files = [path for path in Path("/etc/apt").rglob("*") if path.suffix in (".list", ".sources")]
    lines = [line for path in files for line in path.read_text().splitlines() if not line.startswith("#")]
    yield from re.findall(r"https?://[^\s'\"]+", "\n".join([shown, *lines]))


def _certificates(files: Iterable[Path]) -> set[str]:
    """Return the certificates of PEM files in Base64."""
    texts = (path.read_text(errors="replace") for path in files if path.is_file())
    return {body.replace("\n", "") for text in texts for body in _CERTIFICATE.findall(text)}


def _line_of_signature(text: str) -> bytes:
    """Return the last whole line of a certificate in a PEM file, which no other certificate has."""
    end = len(text) // _LINE * _LINE
    return text[end - _LINE : end].encode()


def _files(engine: Engine, image: str) -> Iterator[tuple[str, bytes]]:
    """Yield all files of an image: those of its layers, and those that describe it."""
    with engine.saved(image) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for path, file in _members(archive):
                if _is_archive(file):
                    with tarfile.open(fileobj=file, mode="r|*") as layer:
                        yield from ((f"{path}: {name}", content.read()) for name, content in _members(layer))
                else:
                    yield path, file.read()


def _is_archive(file: io.BufferedReader) -> bool:
    start = file.peek()
    return start[257:262] == b"ustar" or start.startswith(b"\x1f\x8b")


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, io.BufferedReader]]:
    for member in archive:
        if file := archive.extractfile(member) if member.isfile() else None:
            yield member.name, cast("io.BufferedReader", file)
