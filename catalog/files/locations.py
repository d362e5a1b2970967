"""Comparison of locations in a normalized spelling.

A table's location is also stored as a key (`calve_table.location_key`): bytes with a trailing slash, so that the tables
inside a folder are one range of the index, and those around it are found by the keys of its parent folders.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TypeVar

from catalog.files.credentials import CLUSTER_SCHEMES, HARMLESS_OPTIONS, decoded

T = TypeVar("T")
U = TypeVar("U")

LONGEST_KEY = 2_000
"""Maximum bytes of an indexed location; PostgreSQL's indexes allow about 2,700."""

LONGEST_PATH = 4_096
"""Maximum bytes of a path on a local disk: no file has a longer one, so there are no links to resolve.

Source: `PATH_MAX` in Linux's `limits.h`.
"""

_LOCAL = re.compile("file:/+")
_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "abfs", "wasb": "abfs"}
_STORES = frozenset({"s3", *_SAME_SCHEMES, *_SAME_SCHEMES.values()})
_OPTIONS = re.compile(r"\?[^/]*")
_DEFAULT_PORT = ":8020"
"""Of name nodes. Source: https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/hdfs-default.xml"""
_ALIASES = re.compile("(s3)[an](?=://)")
_REMOTE = re.compile("([a-z][a-z0-9+.-]*)://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)
_NO_NAME = re.compile("[\0\ud800-\udfff]")
_MAY_LEAD_OUT = re.compile(r"^file:|%|(?:^|/)\.\.?(?:/|$)")


def location_key(location: str) -> bytes:
    """Return a location in its normalized spelling, with a trailing slash: the same bytes for the same folder.

    `s3`, `s3a` and `s3n` are one scheme, as are `gs` and `gcs`, and those of Azure; `file:/a`, `file:///a` and `/a` are
    one path. Repeated slashes, `.` and `..` are resolved, as are the symbolic links of existing local paths. Options
    such as `?region=…` are ignored. HDFS is one cluster, because a name service, a name node with or without its port,
    no authority, and a mount of `viewfs` may all mean the same one. A percent sign is a literal character, as in
    Hadoop.
    """
    scheme, mark, rest = location.partition("://")
    if mark and scheme.lower() != "file":
        if "?" in rest:
            rest = _OPTIONS.sub("", rest)
        authority, _, path = rest.partition("/")
        path = posixpath.normpath(f"/{path}").lstrip("/")
        root = _root(scheme, authority)
        return f"{root}{path}/".encode() if path else root.encode()
    return f"{_real_path(_LOCAL.sub('/', location, count=1)).rstrip('/')}/".encode()


def _real_path(path: str) -> str:
    """Return an absolute local path without links; one that no disk can have is returned as it is written."""
    if "\0" in path or len(path) > LONGEST_PATH:
        return posixpath.normpath(posixpath.join(os.getcwd(), path))
    return os.path.realpath(path)


def strict_key(location: str) -> bytes:
    """Return the key of a location for permissions: as `location_key`, but different clusters of HDFS differ.

    The key of a scheme without a bucket or host is a prefix of all keys of the scheme.
    """
    scheme, mark, rest = location.partition("://")
    if not mark or scheme.lower() == "file":
        return location_key(location)
    authority, _, path = rest.partition("/")
    path = posixpath.normpath(f"/{path}").lstrip("/")
    if (scheme := scheme.lower()) in CLUSTER_SCHEMES:
        root = f"{scheme}://{authority.lower().removesuffix(_DEFAULT_PORT)}/"
    else:
        root = _root(scheme, authority)
    return f"{f'{root}{path}'.rstrip('/')}/".encode()


@lru_cache(maxsize=1_024)
def _root(scheme: str, authority: str) -> str:
    """Return the common prefix of the keys of all locations of a bucket, container or cluster."""
    if (scheme := scheme.lower()) in CLUSTER_SCHEMES:
        return "hdfs:///"
    scheme = _SAME_SCHEMES.get(scheme, scheme)
    if scheme == "abfs":
        authority = authority.lower().replace(".blob.", ".dfs.", 1)
    return f"{scheme}://{authority}/"


def location_keys(locations: Iterable[str]) -> dict[bytes, str]:
    """Return the keys of many locations, as `location_key` returns them, each with one of its locations."""
    return {keys[-1]: location for location, keys in locations_with_keys(locations)}


def folder_keys(locations: Iterable[str]) -> dict[bytes, str]:
    """Return all keys of many folders, each with one of its folders.

    A folder below a symbolic link has several keys: with no link in its path resolved, with the first one resolved, and
    so on. A folder inside a table's has one that starts with the table's key, wherever links in the table lead. To find
    out whether two folders are equal or nested, compare all keys of both.
    """
    return {key: location for location, keys in locations_with_keys(locations) for key in keys}


def readings(location: str) -> list[str]:
    """Return a location, and also the one without percent-encoding, as which some engines read it, if it differs."""
    plain = decoded(location)
    return [location] if plain == location or _NO_NAME.search(plain) else [location, plain]


def locations_with_keys(locations: Iterable[str]) -> Iterator[tuple[str, Sequence[bytes]]]:
    """Yield locations with their keys (`folder_keys`); each parent folder is resolved once.

    The last key has all links resolved, as `location_key` returns it.
    """
    parents: dict[str, tuple[Sequence[bytes], bool]] = {}
    for location in locations:
        parent, _, name = location.rpartition("/")
        if not parent or parent[-1] in ":/" or name in ("", ".", "..") or "?" in name:
            yield location, _keys_of_one(location)
            continue
        if (resolved := parents.get(parent)) is None:
            resolved = parents[parent] = _keys_of_one(parent), is_local(parent) and os.path.isdir(local_path(parent))
        keys, may_have_links = resolved
        end = f"{name}/".encode()
        inside = [key + end for key in keys]
        if may_have_links and os.path.islink(local_path(location)):
            inside.append(location_key(location))
        yield location, inside


def _keys_of_one(location: str) -> Sequence[bytes]:
    resolved = location_key(location)
    if not is_local(location):
        return [resolved]
    keys, path = {b"/": None}, ""
    for name in posixpath.normpath(local_path(location)).split("/")[1:]:
        path += f"/{name}"
        keys = {key + f"{name}/".encode(): None for key in keys} if name else keys
        if os.path.islink(path):
            keys[location_key(path)] = None
    keys.pop(resolved, None)
    return [*keys, resolved]


def problem_of_uri(location: str) -> str | None:
    """Return what prevents a location from naming a folder of a store, and what to write; None if nothing does.

    Without a check, `s3:/lake` would be a folder of the current one on the local disk.
    """
    scheme, colon, rest = location.partition(":")
    scheme = scheme.lower()
    if not colon or scheme not in _STORES | CLUSTER_SCHEMES:
        return None
    if not rest.startswith("//"):
        start = "///" if scheme in CLUSTER_SCHEMES else "//"
        return f"has no '//' after its scheme; write {scheme}:{start}{rest.lstrip('/') or 'bucket/folder'}"
    if scheme in _STORES and not rest[2:].partition("/")[0]:
        return f"has no bucket; write {scheme}://bucket/folder"
    return None


def is_local(location: str) -> bool:
    """Return whether a path or URI is on a local disk."""
    return location.startswith(("/", "file:")) or "://" not in location


def local_path(location: str) -> str:
    """Return the path of a local location, without a scheme."""
    return _LOCAL.sub("/", location, count=1) if location.startswith("file:") else location


def has_options(location: str) -> bool:
    """Return whether a URI ends with options, such as `?region=…`; another `?` is a character of a name."""
    head, mark, options = location.rpartition("?")
    names = {option.partition("=")[0].lower() for option in options.split("&")}
    return bool(mark) and (names <= HARMLESS_OPTIONS or "/" not in head.partition("://")[2])


def keys_above(key: bytes) -> Iterator[bytes]:
    """Yield the keys of the folders around a location, and its own."""
    end = key.find(b"//") + 2 if b"://" in key else 0
    while end := key.find(b"/", end) + 1:
        yield key[:end]


def end_of_keys_inside(key: bytes) -> bytes:
    """Return the exclusive upper bound of the keys of all locations inside a folder."""
    return key[:-1] + b"0"  # The character that follows the slash in ASCII.


def overlapping(locations: Mapping[bytes, T], owners: Mapping[bytes, U]) -> Iterator[tuple[T, U]]:
    """Yield the values of folders that are equal or nested, given by their keys; each location with one around it."""
    for key, location in locations.items() if owners else ():
        if (around := next((above for above in keys_above(key) if above in owners), None)) is not None:
            yield location, owners[around]
    for key, owner in owners.items():
        yield from ((locations[above], owner) for above in keys_above(key) if above in locations and above != key)


def parent_key(key: bytes) -> bytes:
    """Return the key of the folder around a location; its own if it is a bucket or root."""
    return ([key, *keys_above(key)])[-2]


def spellings(key: bytes, nodes: Iterable[str]) -> list[str]:
    """Return the possible spellings of a folder in partition locations, given its key.

    Args:
        nodes: The name nodes to consider for a folder on HDFS (`name_nodes`).
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


def file_spellings(path: str) -> list[str]:
    """Return a file's location in its normalized spelling, and then in the other spellings of its scheme.

    Unlike a key (`location_key`), it keeps options, dots in the names of objects, and symbolic links.
    """
    if is_local(path):
        plain = re.sub("^//", "/", posixpath.normpath(local_path(path)))
        return [plain, f"file:{plain}", f"file://{plain}"]
    scheme, _, rest = path.partition("://")
    if (scheme := scheme.lower()) in CLUSTER_SCHEMES:
        return [path]
    authority, _, name = rest.partition("/")
    return spellings(f"{_root(scheme, authority)}{name}/".encode(errors="surrogatepass"), ())


def name_nodes(locations: Iterable[str]) -> list[str]:
    """Return the spellings of the name nodes in locations on HDFS, and the empty string for none."""
    nodes = {"": None}
    for scheme, mark, rest in (location.partition("://") for location in locations):
        if mark and scheme.lower() in CLUSTER_SCHEMES and (node := rest.partition("/")[0]):
            name = node.lower().removesuffix(_DEFAULT_PORT)
            nodes |= dict.fromkeys((node, name, name + _DEFAULT_PORT))
    return list(nodes)


def comparable(location: str) -> str:
    """Return a location in a normalized spelling: `s3a` and `s3n` become `s3`, and a local URI a plain path."""
    if _LOCAL.match(location):
        location = _LOCAL.sub("/", location, count=1)
    if location.startswith("/"):
        return posixpath.normpath(location)
    return _ALIASES.sub(r"\1", location, count=1).rstrip("/")


def complete_path(location: str, path: str) -> str:
    """Return the complete path of a file; `path` is relative to a location, or complete already."""
    return path if path.startswith("/") or "://" in path else f"{location}/{path}"


def is_within(location: str, folder: str) -> bool:
    """Return whether a location is a folder or inside it; both as returned by `comparable`."""
    return location == folder or location.startswith(f"{folder.rstrip('/')}/")


def is_plainly_within(location: str, folder: str) -> bool:
    """Return whether a location starts with a folder and has no part that could lead out of the folder.

    Both are in the stored spelling; False does not mean that the location is outside.
    """
    return location.startswith(f"{folder}/") and not _MAY_LEAD_OUT.search(location)


def has_plain_names(location: str) -> bool:
    """Return whether all file systems find the same place: no name in a location is empty, `.` or `..`.

    Disks and Hadoop resolve such names; in object stores they are names as others are. A trailing slash does not count.
    """
    _, mark, rest = location.partition("://")
    path = rest.partition("/")[2] if mark else _LOCAL.sub("/", location, count=1).removeprefix("/")
    return path == "" or _are_plain(path.removesuffix("/"))


def _are_plain(path: str) -> bool:
    return not any(name in ("", ".", "..") for name in path.split("/"))


def is_literally_within(location: str, folder: str) -> bool:
    """Return whether a location starts with a folder, and all file systems find it there."""
    return location.startswith(f"{folder}/") and _are_plain(location.removeprefix(f"{folder}/"))


def overlap(first: str, second: str) -> bool:
    """Return whether two locations are equal or nested; both as returned by `comparable`."""
    return is_within(first, second) or is_within(second, first)


def reach_key(location: str) -> str:
    """Return a key that is equal for all spellings that may mean the same file; it is not a location.

    Engines interpret a percent sign, two slashes or a missing name node differently. Files whose locations differ only
    in that have the same key, so a file whose key is unknown is not referenced. Symbolic links of local folders are
    resolved.
    """
    location = comparable(decoded(location))
    if remote := _REMOTE.fullmatch(location):
        return f"{_root(remote[1], remote[2])}{posixpath.normpath(f'/{remote[3]}').lstrip('/')}".rstrip("/")
    return _without_links(location, _kept_folder)


class OwnFiles:
    """A test whether files are in some folders, in each way that readers take their paths, and wherever links lead.

    Unlike `reach_key`, it decides what may be read or deleted. It resolves each folder once, so a test serves one step,
    and not the life of a process.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        """Resolve the folders."""
        self._real_folder = cache(_real_folder)
        # A path is in a folder as both are written, and also as both are decoded.
        keys = [*map(self._keys, folders)]
        self._roots = [[literal for literal, _ in keys], [plain for _, plain in keys]]

    def __contains__(self, path: str) -> bool:
        """Return whether a file is in one of the folders."""
        return has_plain_names(path) and all(
            any(_is_plainly_inside(key, root) for root in roots)
            for key, roots in zip(self._keys(path), self._roots, strict=True)
        )

    def among(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of files in the folders, without repetitions."""
        return [path for path in dict.fromkeys(paths) if path in self]

    def _keys(self, path: str) -> tuple[str, str]:
        literal, *others = map(self._key, readings(path))
        return literal, others[0] if others else literal

    def _key(self, path: str) -> str:
        if not is_local(path):
            return strict_key(path).decode(errors="surrogateescape").rstrip("/")
        return _without_links(comparable(path), self._real_folder)


def _is_plainly_inside(key: str, root: str) -> bool:
    """Return whether a file is in a folder, without options behind it, which may lead to another server."""
    return is_within(key, root) and (key.startswith("/") or "?" not in key[len(root) :])


def _without_links(path: str, real_folder: Callable[[str], str]) -> str:
    """Return a local path with links resolved; that of its folder is `real_folder`'s answer."""
    path = re.sub("^//", "/", path)
    if len(path) > LONGEST_PATH:
        return path
    folder, _, name = path.rpartition("/")
    path = f"{real_folder(folder)}/{name}"
    return os.path.realpath(path) if os.path.islink(path) else path


def _real_folder(folder: str) -> str:
    return _real_path(folder).rstrip("/") if folder else ""


_kept_folder = lru_cache(maxsize=1_024)(_real_folder)


def folders_above(key: str) -> Iterator[str]:
    """Yield a location and its parent folders, innermost first; as returned by `reach_key`."""
    while key:
        yield key
        head, slash, _ = key.rpartition("/")
        if not slash or head.endswith(":/"):
            return
        key = head
