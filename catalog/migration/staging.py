"""What the stage of a migration leaves: manifests and metadata that nobody sees, and a file that says what they are.

Each attempt has a folder of its own, `calve-` and what `catalog.operations.attempts` calls it, in the table's folder of
metadata (`catalog.iceberg.places`). The file is the last thing that an attempt writes; one that died leaves none, and
vacuum deletes its folder.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from uuid import NAMESPACE_URL, uuid5

from catalog.errors import FileProblem, RefusedFile, VerificationFailedError
from catalog.files.filesystem import FileInfo, Folder
from catalog.iceberg.places import HIDDEN_METADATA, METADATA
from catalog.operations.attempts import AttemptName, attempt_folder, attempts_among
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import Operation
from catalog.storage import Storage

if TYPE_CHECKING:
    from catalog.iceberg.manifests import WrittenManifest

VECTORIZATION = "read.parquet.vectorization.enabled"
"""The property of an Iceberg table by which Spark reads its Parquet files in batches of values, or value by value.

Source: https://iceberg.apache.org/docs/latest/configuration/#read-properties
"""

_PREFIX = "calve-"
_STAGED = "staged.json"
_END = "end"
_BITS = 128


def attempt_name(metadata_folder: str, operation: Operation, attempt: int) -> str:
    """Return the folder of an attempt, below the table's location.

    Args:
        metadata_folder: The one that the table's metadata are in, below its location.
    """
    return f"{metadata_folder}/{_PREFIX}{attempt_folder(operation, attempt)}"


def attempt_metadata(location: str, name: str) -> str:
    """Return the file of the first metadata that an attempt writes, below the table's location.

    It is where engines look for it, and its name is one that they count on from; the same for the same attempt.

    Args:
        name: The attempt's folder.
    """
    return f"{posixpath.dirname(name)}/00000-{uuid5(NAMESPACE_URL, f'{location}/{name}')}.metadata.json"


def attempt_names(storage: Storage, location: Folder) -> Iterator[AttemptName]:
    """Yield the folders of this catalog's attempts below a table's location."""
    for folder in (METADATA, HIDDEN_METADATA):
        for found in attempts_among(storage, location.folders(folder), _PREFIX):
            yield found._replace(name=f"{folder}/{found.name}")


def staged_folders(location: Folder) -> list[str]:
    """Return the folders of attempts below a table's location, those of other catalogs among them."""
    return [
        f"{folder}/{name}"
        for folder in (METADATA, HIDDEN_METADATA)
        for name in location.folders(folder)
        if name.startswith(_PREFIX)
    ]


class ListingDigest:
    """A digest of a table's data files, whatever the order in which they are listed, and by whom.

    Of each file it has path, size and time of the last change. Files are added one by one; digests of parts that have
    no file in common are added up.
    """

    def __init__(self, text: str | None = None) -> None:
        """Begin with no file, or with those of a digest's text."""
        self._sum, self._count = (0, 0) if text is None else self._parse(text)

    @staticmethod
    def _parse(text: str) -> tuple[int, int]:
        count, _, number = text.partition("-")
        return int(number, 16), int(count)

    def add(self, file: FileInfo) -> None:
        """Count a file."""
        said = f"{file.path}\0{file.size_bytes}\0{file.modified_at_ms}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(hashlib.blake2b(said, digest_size=_BITS // 8).digest(), "big")
        self._sum = (self._sum + number) % (1 << _BITS)
        self._count += 1

    def __add__(self, other: ListingDigest) -> ListingDigest:
        """Return the digest of both parts' files."""
        both = ListingDigest()
        both._sum, both._count = (self._sum + other._sum) % (1 << _BITS), self._count + other._count
        return both

    @property
    def file_count(self) -> int:
        """How many files were counted."""
        return self._count

    def __str__(self) -> str:
        """Return the digest as text: how many files, and 128 bits of them."""
        return f"{self._count}-{self._sum:0{_BITS // 4}x}"


class PartitionTotal(NamedTuple):
    """What one partition has.

    Attributes:
        ordinal: As in `SourceFolder`.
    """

    ordinal: int
    file_count: int
    row_count: int
    size_bytes: int


class Counted(NamedTuple):
    """What all partitions have together, when what each has is in files.

    Attributes:
        partition_count: How many have data files.
        totals: A folder of Parquet files below the attempt's, with the columns of `PartitionTotal`; one partition may
            have several rows, which add up.
    """

    file_count: int
    row_count: int
    size_bytes: int
    partition_count: int
    totals: str


@dataclass(frozen=True)
class Staged:
    """What the Spark job of a migration's stage hands over.

    Attributes:
        manifests: Whose entries have neither a snapshot id nor a sequence number.
        totals: Of each partition that has files, by ordinal; empty when they are counted.
        spellings: Field id → other names that files use for it.
        problems: The files that are not part of the table, and why; of very many, the first.
        listing: The digest of all files that were listed, also of those that are not part of the table.
        counted: What `totals` would add up to; None to add them up.
        unknown: Columns of files that the table does not have, as in `catalog.iceberg.footers.columns.Match`.
        problem_counts: What is wrong → with how many files; None when `problems` has all of them.
        unvectorized: As in `catalog.iceberg.footers.facts.FileFacts`.
    """

    manifests: Sequence[WrittenManifest]
    totals: Sequence[PartitionTotal]
    listing: str
    spellings: Mapping[int, Sequence[str]]
    problems: Sequence[RefusedFile]
    counted: Counted | None = None
    problem_counts: Mapping[str, int] | None = None
    unknown: Sequence[tuple[int, Sequence[str]]] = ()
    unvectorized: Sequence[str] = ()

    @cached_property
    def _counted(self) -> Counted:
        if self.counted is not None:
            return self.counted
        files, rows, sizes = (sum(each[n] for each in self.totals) for n in (1, 2, 3))
        return Counted(files, rows, sizes, sum(each.file_count > 0 for each in self.totals), "")

    @property
    def file_count(self) -> int:
        """How many data files there are."""
        return self._counted.file_count

    @property
    def row_count(self) -> int:
        """How many rows they have."""
        return self._counted.row_count

    @property
    def size_bytes(self) -> int:
        """How large they are together."""
        return self._counted.size_bytes

    @property
    def partition_count(self) -> int:
        """How many partitions have files."""
        return self._counted.partition_count

    @property
    def reading_properties(self) -> dict[str, str]:
        """The properties of the Iceberg table without which Spark could not read the files."""
        return {VECTORIZATION: "false"} if self.unvectorized else {}

    @property
    def warnings(self) -> list[str]:
        """Sentences on consequences of files, one for each kind."""
        if not self.unvectorized:
            return []
        return [
            f"columns {', '.join(self.unvectorized)} have booleans stored as runs (encoding RLE), which Iceberg's "
            f"vectorized reader for Spark does not decode; {VECTORIZATION} of the Iceberg table is set to false, with "
            "which Spark reads more slowly. Rewrite the data files, then set it to true"
        ]

    def count_problems(self, except_for: Collection[str] = ()) -> int:
        """Return how many files are not part of the table, but for those with some problems."""
        counts = Counter(each.problem for each in self.problems) if self.problem_counts is None else self.problem_counts
        return sum(count for problem, count in counts.items() if problem not in except_for)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "manifests": [each.as_json() for each in self.manifests],
            "totals": [list(each) for each in self.totals],
            "listing": self.listing,
            "spellings": {str(field): sorted(names) for field, names in self.spellings.items()},
            "problems": [[each.path, each.problem, each.message] for each in self.problems],
            "counted": None if self.counted is None else list(self.counted),
            "problem_counts": None if self.problem_counts is None else dict(self.problem_counts),
            "unknown": [[parent, list(path)] for parent, path in self.unknown],
            "unvectorized": list(self.unvectorized),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return what `as_json` wrote."""
        from catalog.iceberg.manifests import WrittenManifest

        return cls(
            [WrittenManifest.from_json(each) for each in values["manifests"]],
            [PartitionTotal(*each) for each in values["totals"]],
            values["listing"],
            {int(field): tuple(names) for field, names in values["spellings"].items()},
            [RefusedFile(path, FileProblem(problem), message) for path, problem, message in values["problems"]],
            None if values["counted"] is None else Counted(*values["counted"]),
            values["problem_counts"],
            [(parent, tuple(path)) for parent, path in values["unknown"]],
            values.get("unvectorized", ()),
        )


def merged_spellings(found: Iterable[tuple[int, str]]) -> dict[int, tuple[str, ...]]:
    """Return field id → the names that files use for it, in alphabetical order."""
    names: dict[int, set[str]] = {}
    for field, name in found:
        names.setdefault(field, set()).add(name)
    return {field: tuple(sorted(each)) for field, each in sorted(names.items())}


def write_staged(location: str, name: str, staged: Staged, metadata_location: str | None) -> None:
    """Write, as the last thing of an attempt, what it has staged.

    Args:
        name: The attempt's folder, below the location.
        metadata_location: Of the first metadata; None when they are only written with the commit.
    """
    with Folder(location).writing(f"{name}/{_STAGED}") as text:
        json.dump({**staged.as_json(), "metadata_location": metadata_location, _END: True}, text)
    reached(Point.STAGED)


def read_staged(location: str, name: str) -> tuple[Staged, str | None]:
    """Return what an attempt has staged, and the location of its metadata.

    Raises:
        VerificationFailedError: It is not there, or not whole.
    """
    folder = Folder(location)
    path = f"{name}/{_STAGED}"
    if folder.exists(path):
        with folder.open_text(path) as text:
            written = text.read()
        # A file that was cut off is no JSON.
        if written.endswith("}"):
            values = json.loads(written)
            return Staged.from_json(values), values["metadata_location"]
    raise VerificationFailedError(
        f"{location}/{path} is not there, or not whole; nothing was changed. Run the operation again, which stages the "
        "files anew"
    )


def is_staged(location: str, name: str) -> bool:
    """Say whether an attempt has staged all it should."""
    return Folder(location).exists(f"{name}/{_STAGED}")


def forget_staged(location: Folder, name: str) -> None:
    """Delete the list of what an attempt has staged, so that nobody takes it for whole any more."""
    location.delete_file(f"{name}/{_STAGED}")
