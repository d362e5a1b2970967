"""Names of the files that Calve writes into the folder of a managed table, and deleting just these.

The folder was empty when the table got it, but it is open to others afterwards. The catalog keeps no list of the files
of value partitions, so PURGE goes by names: data files carry the identity of the catalog that wrote them, which no
other Spark uses; further own files are those of Calve's own folders, and Iceberg's metadata. Every other file was
written by somebody else; so were those in folders that are named after another catalog (`catalog.attempts`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from catalog.files import Folder, in_parallel

SHOWN = 5
"""Files of others that a message names."""

_JOB = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN = re.compile(
    # Spark puts a task's number and its job's id behind the base name, Hadoop writes checksums beside the file, and
    # `.calve-` marks an unfinished copy. Source: Spark's `HadoopMapReduceCommitProtocol.getFilename`.
    rf"(.*/)?(\.calve-)?\.?calve-(?P<catalog>[0-9a-f]{{16}})-[0-9]{{5,}}-{_JOB}[-_.][^/]*"
    r"|(_calve_staging|_calve_rejected|_iceberg)/.*"
    r"|([0-9a-f]{16}-)?[1-9][0-9]*-[1-9][0-9]*/"
    r"((calve_partition_id=[0-9]+|_temporary)/.*|_manifest\.jsonl|_SUCCESS|\._SUCCESS\.crc)"
    r"|metadata/(calve-[^/]*/.*|(.*/)?([0-9]{5,}-[^/]*\.metadata\.json|snap-[^/]*\.avro|[^/]*-m[0-9]+\.avro))",
    re.DOTALL,
)
_CATALOG = re.compile(r"((_calve_staging|_calve_rejected)/|(_iceberg|metadata)/calve-)?([0-9a-f]{16})-[1-9]")


def base_name(catalog: str) -> str:
    """Return how the names of data files in value partitions begin.

    Args:
        catalog: The catalog's `Storage.identity`.
    """
    return f"calve-{catalog}"


def is_own_file(path: str, catalog: str) -> bool:
    """Return whether a file is named as Calve names what it writes, and not by another catalog.

    Args:
        path: Below the folder of the table, or of a partition.
        catalog: The catalog's `Storage.identity`.
    """
    own, folder = _OWN.fullmatch(path), _CATALOG.match(path)
    return own is not None and {own["catalog"], folder and folder[4]} <= {None, catalog}


@dataclass(frozen=True)
class OthersFiles:
    """Files of others, which a purge left.

    Attributes:
        count: How many.
        first: The paths of the first ones.
    """

    count: int = 0
    first: tuple[str, ...] = ()

    def __add__(self, other: OthersFiles) -> OthersFiles:
        """Return both together."""
        return OthersFiles(self.count + other.count, (self.first + other.first)[:SHOWN])

    def __str__(self) -> str:
        """Return one clause for people."""
        more = f" and {self.count - len(self.first):,} more" if self.count > len(self.first) else ""
        return f"{self.count:,} file(s) that Calve did not write: {', '.join(self.first)}{more}"


def delete_own_files(location: str, catalog: str, kept: Iterable[str] = ()) -> OthersFiles:
    """Delete the files in a folder that this catalog wrote, and the folders that are empty then, this one included.

    Done again, it does the rest. A link inside is somebody else's, and is not followed.

    Args:
        catalog: The catalog's `Storage.identity`.
        kept: Paths below the folder that stay with what is inside.

    Returns:
        What stays beside `kept`.

    Raises:
        OSError, ValueError: The file system refuses.
    """
    return _Deletion(Folder(location), catalog, frozenset(kept)).run("").others


@dataclass(frozen=True)
class _Outcome:
    others: OthersFiles = OthersFiles()
    is_gone: bool = True


class _Deletion:
    def __init__(self, folder: Folder, catalog: str, kept: Collection[str]) -> None:
        self._folder = folder
        self._catalog = catalog
        self._kept = kept

    def run(self, name: str) -> _Outcome:
        """Clear one folder inside."""
        folders, own, others, is_whole = self._entries(name)
        # Only the uppermost folders side by side: threads that wait for threads would wait for ever.
        for outcome in in_parallel(self.run, folders, **({} if name == "" else {"threads": 1})):
            others += outcome.others
            is_whole = is_whole and outcome.is_gone
        # One by one, and the folder only if it is empty: what has arrived since it was listed may be somebody else's.
        for path in own:
            self._folder.delete_file(path)
        if not is_whole or others.count:
            return _Outcome(others, is_gone=False)
        return _Outcome(is_gone=self._inside(name).delete_if_empty())

    def _inside(self, name: str) -> Folder:
        return self._folder.inside(name) if name else self._folder

    def _entries(self, name: str) -> tuple[list[str], list[str], OthersFiles, bool]:
        """Return the folders inside, our own files, those of others, and whether nothing has to be kept."""
        folders, own, others, is_whole = [], [], OthersFiles(), True
        for info, is_folder in self._inside(name).entries(recursive=False):
            path = posixpath.join(name, posixpath.basename(info.path))
            if path in self._kept:
                is_whole = False
            elif self._folder.is_link(path):
                others += OthersFiles(1, (f"{self._folder.location}/{path}",))
            elif is_folder:
                folders.append(path)
            elif is_own_file(path, self._catalog):
                own.append(path)
            else:
                others += OthersFiles(1, (f"{self._folder.location}/{path}",))
        return folders, own, others, is_whole
