"""Recognition and deletion of the files that Calve has written into the folder of a managed table.

The folder was empty when the table got it, but others may write into it afterwards. The catalog keeps no list of the
files of value partitions, so PURGE goes by names: the names of data files contain the identity of the catalog that
wrote them, which no other Spark job uses. Files in Calve's own folders and Iceberg's metadata are Calve's, too, and so
are the data files that other engines have written to an Iceberg table in the folder. All other files belong to others,
and so do files in folders named after another catalog (`catalog.operations.attempts`).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from catalog.errors import LocationNotAllowedError
from catalog.errors.base import first_of
from catalog.files.filesystem import Folder, in_parallel, is_hidden
from catalog.files.locations import comparable, is_local, is_within
from catalog.model import Table
from catalog.settings.places import LOCATIONS, allows_everything, is_outside

SHOWN = 5
"""The maximum number of others' files that a message names."""

ALL_FILES = "all_files"
"""The field of a purge's request that is true if it deletes the files of all writers, as a metastore does."""

_BATCH = 1_000
"""The number of folders that are listed together."""

_JOB = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN = re.compile(
    # Spark appends the task's number and the job's id to the base name, Hadoop writes checksums next to the file, and
    # `.calve-` marks an unfinished copy. Source: Spark's `HadoopMapReduceCommitProtocol.getFilename`.
    rf"(.*/)?(\.calve-)?\.?calve-(?P<catalog>[0-9a-f]{{16}})-[0-9]{{5,}}-{_JOB}[-_.][^/]*"
    r"|(_calve_(staging|rejected|versions)|_iceberg)/.*"
    r"|([0-9a-f]{16}-)?[1-9][0-9]*-[1-9][0-9]*/"
    rf"((calve_partition_id=[0-9]+|key\.[^/]*|_temporary)/.*|\.?part-[0-9]{{5,}}-{_JOB}[-_.][^/]*"
    r"|_manifest\.jsonl|_SUCCESS|\._SUCCESS\.crc)"
    # Other engines write into this folder of Iceberg tables. Source: Iceberg's `OutputFileFactory`, and PyIceberg's
    # `WriteTask`.
    rf"|data/([^/]+=[^/]*/)*[0-9]{{5,}}-[0-9]+-{_JOB}(-[0-9]+)*(-deletes)?\.parquet"
    r"|metadata/(calve-[^/]*/.*|(.*/)?([0-9]{5,}-[^/]*\.metadata\.json|snap-[^/]*\.avro|[^/]*-m[0-9]+\.avro))",
    re.DOTALL,
)
_JOB_OF = re.compile(rf"calve-[0-9a-f]{{16}}-[0-9]{{5,}}-({_JOB})[-_.]")
_CATALOG = re.compile(r"(_calve_(staging|rejected|versions)/|(_iceberg|metadata)/calve-)?([0-9a-f]{16})-[1-9]")


def base_name(catalog: str) -> str:
    """Return the prefix of the names of data files in value partitions.

    Args:
        catalog: The catalog's `Storage.identity`.
    """
    return f"calve-{catalog}"


def job_of(name: str) -> str | None:
    """Return the id of the Spark job that wrote a data file of a value partition, which its name has; else None."""
    match = _JOB_OF.match(name)
    return match and match.group(1)


def is_own_file(path: str, catalog: str) -> bool:
    """Return whether a file's name shows that this catalog wrote it.

    Args:
        path: The path relative to the folder of the table or partition.
        catalog: The catalog's `Storage.identity`.
    """
    own, folder = _OWN.fullmatch(path), _CATALOG.match(path)
    return own is not None and {own["catalog"], folder and folder[4]} <= {None, catalog}


class OwnFiles(NamedTuple):
    """The files in a folder that one catalog wrote; `digest` is a hash of their names and sizes."""

    file_count: int
    size_bytes: int
    digest: str


def find_own_files(location: str, catalog: str) -> OwnFiles:
    """List a folder, and return a summary of the files that this catalog wrote.

    Args:
        catalog: The catalog's `Storage.identity`.

    Raises:
        OSError, ValueError: The file system refused.
    """
    folder, count, size, total = Folder(location), 0, 0, 0
    for info, is_folder in folder.entries(recursive=True):
        path = info.path.removeprefix(f"{folder.location}/")
        if not is_folder and is_own_file(path, catalog):
            count, size = count + 1, size + info.size_bytes
            # A sum, because the order of listing is not defined.
            total += int.from_bytes(sha256(f"{path}\0{info.size_bytes}".encode(errors="surrogateescape")).digest())
    return OwnFiles(count, size, f"{total % 2**256:064x}")


@dataclass(frozen=True)
class PurgedFiles:
    """The files of others that a purge did not delete, and what it deleted.

    Attributes:
        count: The number of files that stay.
        first: The paths of the first `SHOWN` of them.
        deleted: The number of deleted files.
        deleted_bytes: Their size.
    """

    count: int = 0
    first: tuple[str, ...] = ()
    deleted: int = 0
    deleted_bytes: int = 0

    def __add__(self, other: PurgedFiles) -> PurgedFiles:
        """Return the sum of both."""
        return PurgedFiles(
            self.count + other.count,
            (self.first + other.first)[:SHOWN],
            self.deleted + other.deleted,
            self.deleted_bytes + other.deleted_bytes,
        )

    @property
    def deletion(self) -> str:
        """A phrase for messages about what was deleted."""
        return f"{self.deleted:,} file(s), {self.deleted_bytes:,} bytes"

    def __str__(self) -> str:
        """Return a phrase for messages about the files that stay."""
        return f"{self.count:,} file(s) that Calve did not write: {first_of(self.first, SHOWN, count=self.count)}"


def delete_own_files(
    location: str, catalog: str | None, kept: Iterable[str] = (), *, may_go_on: Callable[[], bool] = lambda: True
) -> PurgedFiles:
    """Delete the files in a folder that this catalog wrote, and then the empty folders, including the folder itself.

    Safe to repeat: another call deletes what remains. Symbolic links belong to others, and are not followed; behind one
    that leads out of the allowed folders (`is_linked_outside`), nothing is deleted.

    Args:
        catalog: The catalog's `Storage.identity`; None to delete the files of all writers (`ALL_FILES`).
        kept: Relative paths to keep, with their contents.
        may_go_on: Called between listing files and deleting them; if it returns false, the deletion stops. Files that
            arrive later have new names, and stay.

    Returns:
        The files that stay besides `kept`, and what was deleted.

    Raises:
        OSError, ValueError: The file system refused.
    """
    if is_linked_outside(location):
        return PurgedFiles(1, (location,))
    return _Deletion(Folder(location), catalog, frozenset(kept), may_go_on).run()


def is_linked_outside(location: str) -> bool:
    """Return whether a local partition's folder is behind a symbolic link that leads out of the allowed folders."""
    path = comparable(location)
    while is_local(path) and "=" in path.rpartition("/")[2]:
        if os.path.islink(path):
            return is_outside(os.path.realpath(comparable(location)))
        path = path.rpartition("/")[0]
    return False


def require_no_links_outside(table: Table, folders: Iterable[str]) -> None:
    """Check that no link in local folders of a table, or on the way to one, leads out of it and the allowed folders.

    Hidden names are skipped, as readers skip them. A folder that no link leads to is not checked: it was when it became
    the table's.

    Raises:
        LocationNotAllowedError: One does.
    """
    if allows_everything():
        return
    own = os.path.realpath(comparable(table.location))
    for folder in map(comparable, filter(is_local, folders)):
        for path in (folder, *_links_below(folder)):
            target = os.path.realpath(path)
            if target != folder and not is_within(target, own) and is_outside(target):
                raise LocationNotAllowedError(
                    f"table {table.full_name}: {path} is behind a symbolic link that leads out of the allowed folders, "
                    f"to {target}; replace the link by the files, or ask an administrator to add the folder to "
                    f"{LOCATIONS}"
                )


def _links_below(folder: str) -> Iterator[str]:
    """Yield the paths of the visible symbolic links in a local folder and its subfolders."""
    # What cannot be listed, the reader names.
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_symlink():
                yield entry.path
            elif entry.is_dir(follow_symlinks=False):
                yield from _links_below(entry.path)


class _Contents(NamedTuple):
    """The contents of one folder: folders, own files with sizes, others' files, and whether an entry is in `kept`."""

    folders: list[str]
    own: dict[str, int]
    others: PurgedFiles
    has_kept: bool


class _Deletion:
    def __init__(
        self, folder: Folder, catalog: str | None, kept: Collection[str], may_go_on: Callable[[], bool]
    ) -> None:
        self._folder = folder
        self._catalog = catalog
        self._kept = kept
        self._may_go_on = may_go_on

    def run(self) -> PurgedFiles:
        """Delete own files and empty folders; each batch of folders is listed before its files are deleted."""
        others = PurgedFiles()
        pending, listed, staying = [""], list[str](), set[str]()
        while pending:
            names = pending[-_BATCH:]
            del pending[-_BATCH:]
            own: dict[str, int] = {}
            for name, contents in zip(names, in_parallel(self._contents, names), strict=True):
                listed.append(name)
                pending += contents.folders
                own |= contents.own
                others += contents.others
                if contents.has_kept or contents.others.count:
                    staying.add(name)
            if not self._may_go_on():
                return others
            # File by file, not the whole folder: files that arrived after the listing may belong to others.
            for _ in in_parallel(self._folder.delete_file, own):
                pass
            others += PurgedFiles(deleted=len(own), deleted_bytes=sum(own.values()))
        self._delete_empty(listed, staying)
        return others

    def _delete_empty(self, names: Iterable[str], staying: set[str]) -> None:
        """Delete the folders in which nothing stays, innermost first."""
        by_depth: dict[int, list[str]] = {}
        for name in names:
            by_depth.setdefault(name.count("/") + 1 if name else 0, []).append(name)
        for depth in sorted(by_depth, reverse=True):
            empty = [name for name in by_depth[depth] if name not in staying]
            are_gone = in_parallel(lambda name: self._inside(name).delete_if_empty(), empty)
            staying.update(name for name, is_gone in zip(empty, are_gone, strict=True) if not is_gone)
            staying.update(posixpath.dirname(name) for name in by_depth[depth] if name in staying)

    def _inside(self, name: str) -> Folder:
        return self._folder.inside(name) if name else self._folder

    def _is_own(self, path: str) -> bool:
        return self._catalog is None or is_own_file(path, self._catalog)

    def _contents(self, name: str) -> _Contents:
        contents = _Contents([], {}, PurgedFiles(), has_kept=False)
        for info, is_folder in self._inside(name).entries(recursive=False):
            path = posixpath.join(name, posixpath.basename(info.path))
            if path in self._kept:
                contents = contents._replace(has_kept=True)
            elif self._folder.is_link(path) or not (is_folder or self._is_own(path)):
                other = PurgedFiles(1, (f"{self._folder.location}/{path}",))
                contents = contents._replace(others=contents.others + other)
            elif is_folder:
                contents.folders.append(path)
            else:
                contents.own[path] = info.size_bytes
        return contents
