"""Locations compared in one spelling.

A table's location is kept a second time as a key (`calve_table.location_key`): bytes that end with a slash, so that the
tables inside a folder are one range of the index, and those around it are found by the folders above.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from catalog.credentials import decoded

_LOCAL = re.compile("file:/+")
_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_ALIASES = re.compile("(s3)[an](?=://)")
_REMOTE = re.compile("([a-z][a-z0-9+.-]*)://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)
_SAME_FILES = {**_SAME_SCHEMES, "abfss": "abfs", "wasbs": "abfs", "wasb": "abfs"}
_SINGLE_CLUSTER = ("hdfs", "viewfs")
_MAY_LEAD_OUT = re.compile(r"^file:|%|(?:^|/)\.\.?(?:/|$)")


def location_key(location: str) -> bytes:
    """Return a location in one spelling, with a slash at its end: the same bytes for the same folder.

    `s3`, `s3a` and `s3n` are one scheme; `file:/a`, `file:///a` and `/a` one path. Repeated slashes, `.` and `..` are
    resolved, as are the symbolic links of local paths that exist.
    """
    scheme, mark, rest = location.partition("://")
    if mark and scheme.lower() != "file":
        scheme, (authority, _, path) = scheme.lower(), rest.partition("/")
        path = posixpath.normpath(f"/{path}").lstrip("/")
        text = f"{_SAME_SCHEMES.get(scheme, scheme)}://{authority}/{path}"
    else:
        text = os.path.realpath(_LOCAL.sub("/", location, count=1))
    return f"{text.rstrip('/')}/".encode()


def location_keys(locations: Iterable[str]) -> dict[bytes, str]:
    """Return the keys of many locations, as `location_key` returns them, with a location of each."""
    return {keys[-1]: location for location, keys in locations_with_keys(locations)}


def folder_keys(locations: Iterable[str]) -> dict[bytes, str]:
    """Return all keys of many folders, with a folder of each: first of those whose links are resolved.

    A folder below a symbolic link has more than one key: with none of the links in its path resolved, with the first
    one, and so on. A folder inside a table's has one that begins with the key of the table, wherever links in the table
    lead. To ask whether two folders are the same, or one is inside the other, compare all keys of both.
    """
    return {key: location for location, keys in locations_with_keys(locations) for key in keys}


def locations_with_keys(locations: Iterable[str]) -> Iterator[tuple[str, Sequence[bytes]]]:
    """Yield locations with their keys (`folder_keys`); folders above are looked at once.

    The key with all links resolved, which `location_key` returns, is the last.
    """
    parents: dict[str, tuple[Sequence[bytes], bool]] = {}
    for location in locations:
        parent, _, name = location.rpartition("/")
        if not parent or parent[-1] in ":/" or name in ("", ".", ".."):
            yield location, _keys_of_one(location)
            continue
        if (above := parents.get(parent)) is None:
            above = parents[parent] = _keys_of_one(parent), _is_local(parent) and os.path.isdir(_plain(parent))
        keys, may_have_links = above
        end = f"{name}/".encode()
        inside = [key + end for key in keys]
        if may_have_links and os.path.islink(_plain(location)):
            inside.append(location_key(location))
        yield location, inside


def _keys_of_one(location: str) -> Sequence[bytes]:
    resolved = location_key(location)
    if not _is_local(location):
        return [resolved]
    keys, path = {b"/": None}, ""
    for name in posixpath.normpath(_plain(location)).split("/")[1:]:
        path += f"/{name}"
        keys = {key + f"{name}/".encode(): None for key in keys} if name else keys
        if os.path.islink(path):
            keys[location_key(path)] = None
    keys.pop(resolved, None)
    return [*keys, resolved]


def _is_local(location: str) -> bool:
    return "://" not in location or location.startswith("file:")


def _plain(location: str) -> str:
    return _LOCAL.sub("/", location, count=1) if location.startswith("file:") else location


def keys_above(key: bytes) -> Iterator[bytes]:
    """Yield the keys of the folders around a location, and its own."""
    end = key.find(b"//") + 2 if b"://" in key else 0
    while end := key.find(b"/", end) + 1:
        yield key[:end]


def end_of_keys_inside(key: bytes) -> bytes:
    """Return the least bytes that are greater than the keys of all locations inside one."""
    return key[:-1] + b"0"  # The character after the slash.


def comparable(location: str) -> str:
    """Return a location in one of its spellings: `s3a` and `s3n` are `s3`, and a local file is a plain path."""
    if _LOCAL.match(location):
        location = _LOCAL.sub("/", location, count=1)
    if location.startswith("/"):
        return posixpath.normpath(location)
    return _ALIASES.sub(r"\1", location, count=1).rstrip("/")


def is_within(location: str, folder: str) -> bool:
    """Return whether a location is a folder or inside it; both as `comparable` returns them."""
    return location == folder or location.startswith(f"{folder.rstrip('/')}/")


def is_plainly_within(location: str, folder: str) -> bool:
    """Return whether a location begins with a folder and has nothing in it that could lead out of the folder.

    Both as they are stored; false says nothing.
    """
    return location.startswith(f"{folder}/") and not _MAY_LEAD_OUT.search(location)


def overlap(first: str, second: str) -> bool:
    """Return whether one of two locations is the other or inside it; both as `comparable` returns them."""
    return is_within(first, second) or is_within(second, first)


def reach_key(location: str) -> str:
    """Return what is equal for all spellings that may mean the same file; it is no location itself.

    Engines disagree on what a percent sign, two slashes or a missing name node mean. Two files that differ only in that
    have the same key, so a file whose key is unknown is a file that nobody names. Symbolic links of local folders are
    resolved.
    """
    location = comparable(decoded(location))
    if remote := _REMOTE.fullmatch(location):
        scheme = remote[1].lower()
        authority = "" if scheme in _SINGLE_CLUSTER else remote[2]
        return f"{_SAME_FILES.get(scheme, scheme)}://{authority}{posixpath.normpath(f'/{remote[3]}')}".rstrip("/")
    folder, _, name = re.sub("^//", "/", location).rpartition("/")
    path = f"{_real_folder(folder)}/{name}"
    return os.path.realpath(path) if os.path.islink(path) else path


@lru_cache(maxsize=1_024)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder).rstrip("/") if folder else ""


def folders_above(key: str) -> Iterator[str]:
    """Yield a location and the folders around it, from the innermost; as `reach_key` returns them."""
    while key:
        yield key
        head, slash, _ = key.rpartition("/")
        if not slash or head.endswith(":/"):
            return
        key = head
