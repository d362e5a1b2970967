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

from catalog.files.credentials import decoded

LONGEST_KEY = 2_000
"""Bytes of the longest location that is indexed; PostgreSQL's indexes take no more than about 2,700."""

_LOCAL = re.compile("file:/+")
_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "abfs", "wasb": "abfs"}
_OF_CLUSTERS = frozenset({"hdfs", "viewfs", "webhdfs", "swebhdfs"})
_OPTIONS = re.compile(r"\?[^/]*")
_DEFAULT_PORT = ":8020"
"""Of name nodes. Source: https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/hdfs-default.xml"""
_ALIASES = re.compile("(s3)[an](?=://)")
_REMOTE = re.compile("([a-z][a-z0-9+.-]*)://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)
_MAY_LEAD_OUT = re.compile(r"^file:|%|(?:^|/)\.\.?(?:/|$)")


def location_key(location: str) -> bytes:
    """Return a location in one spelling, with a slash at its end: the same bytes for the same folder.

    `s3`, `s3a` and `s3n` are one scheme, as are `gs` and `gcs`, and those of Azure; `file:/a`, `file:///a` and `/a` one
    path. Repeated slashes, `.` and `..` are resolved, as are the symbolic links of local paths that exist. Options such
    as `?region=…` do not count. HDFS counts as one cluster, because a name service, a name node, with or without its
    port, none, and a mount of `viewfs` may all mean the same one. A percent sign is a character, as for Hadoop.
    """
    scheme, mark, rest = location.partition("://")
    if mark and scheme.lower() != "file":
        if "?" in rest:
            rest = _OPTIONS.sub("", rest)
        authority, _, path = rest.partition("/")
        path = posixpath.normpath(f"/{path}").lstrip("/")
        root = _root(scheme, authority)
        return f"{root}{path}/".encode() if path else root.encode()
    return f"{os.path.realpath(_LOCAL.sub('/', location, count=1)).rstrip('/')}/".encode()


def strict_key(location: str) -> bytes:
    """Return the key of a location for permissions: as `location_key`, but no two clusters of HDFS are the same.

    That of a scheme without a bucket or host is the beginning of all keys of the scheme.
    """
    scheme, mark, rest = location.partition("://")
    if not mark or scheme.lower() == "file":
        return location_key(location)
    authority, _, path = rest.partition("/")
    path = posixpath.normpath(f"/{path}").lstrip("/")
    if (scheme := scheme.lower()) in _OF_CLUSTERS:
        root = f"{scheme}://{authority.lower().removesuffix(_DEFAULT_PORT)}/"
    else:
        root = _root(scheme, authority)
    return f"{f'{root}{path}'.rstrip('/')}/".encode()


@lru_cache(maxsize=1_024)
def _root(scheme: str, authority: str) -> str:
    """Return what the keys of all locations of a bucket, container or cluster begin with."""
    if (scheme := scheme.lower()) in _OF_CLUSTERS:
        return "hdfs:///"
    scheme = _SAME_SCHEMES.get(scheme, scheme)
    if scheme == "abfs":
        authority = authority.lower().replace(".blob.", ".dfs.", 1)
    return f"{scheme}://{authority}/"


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
        if not parent or parent[-1] in ":/" or name in ("", ".", "..") or "?" in name:
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


def spellings(key: bytes, nodes: Iterable[str]) -> list[str]:
    """Return a folder as partitions may have it, given by its key.

    Args:
        nodes: The name nodes that it may be on, if it is on HDFS (`name_nodes`).
    """
    plain = key[:-1].decode()
    scheme, mark, rest = plain.partition("://")
    if not mark:
        return [plain, f"file:{plain}", f"file://{plain}"]
    if scheme == "hdfs":
        return [f"{name}://{node}{rest}" for name in ("hdfs", "viewfs") for node in nodes]
    if scheme == "abfs":
        blobs = rest.replace(".dfs.", ".blob.", 1)
        return [f"abfs://{rest}", f"abfss://{rest}", f"wasb://{blobs}", f"wasbs://{blobs}"]
    return [plain, *(f"{other}://{rest}" for other, same in _SAME_SCHEMES.items() if same == scheme)]


def name_nodes(locations: Iterable[str]) -> list[str]:
    """Return the name nodes of locations on HDFS as others may write them, and the empty text for none."""
    nodes = {"": None}
    for scheme, mark, rest in (location.partition("://") for location in locations):
        if mark and scheme.lower() in _OF_CLUSTERS and (node := rest.partition("/")[0]):
            name = node.lower().removesuffix(_DEFAULT_PORT)
            nodes |= dict.fromkeys((node, name, name + _DEFAULT_PORT))
    return list(nodes)


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
        return f"{_root(remote[1], remote[2])}{posixpath.normpath(f'/{remote[3]}').lstrip('/')}".rstrip("/")
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
