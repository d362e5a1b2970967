"""Results of a migration's stage: manifests and metadata that no reader sees yet, and a file that lists them.

Each attempt writes into its own folder in the table's metadata folder (`catalog.iceberg.places`), named `calve-` and
the attempt's name from `catalog.operations.attempts`. An attempt writes the list last; an attempt that died leaves no
list, and vacuum deletes its folder.
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

from catalog.errors import FileProblem, RefusedFile, UnusableFilesError, VerificationFailedError
from catalog.files.filesystem import FileInfo, Folder
from catalog.iceberg.places import HIDDEN_METADATA, METADATA
from catalog.migration.requests import MigrationRequest
from catalog.operations.attempts import AttemptName, attempt_folder, attempts_among
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import Operation
from catalog.storage import Storage

if TYPE_CHECKING:
    from catalog.iceberg.manifests import WrittenManifest

VECTORIZATION = "read.parquet.vectorization.enabled"
"""The Iceberg table property that selects Spark's vectorized Parquet reader or the one for single values.

Source: https://iceberg.apache.org/docs/latest/configuration/#read-properties
"""

_PREFIX = "calve-"
_STAGED = "staged.json"
_END = "end"
_BITS = 128


def attempt_name(metadata_folder: str, operation: Operation, attempt: int) -> str:
    """Return the folder of an attempt, relative to the table's location.

    Args:
        metadata_folder: The table's metadata folder, relative to its location.
    """
    return f"{metadata_folder}/{_PREFIX}{attempt_folder(operation, attempt)}"


def attempt_metadata(location: str, name: str) -> str:
    """Return the path of the first metadata file of an attempt, relative to the table's location.

    Its folder is where engines expect metadata, and its name starts with a version that they increment. The same
    attempt always has the same path.

    Args:
        name: The attempt's folder.
    """
    return f"{posixpath.dirname(name)}/00000-{uuid5(NAMESPACE_URL, f'{location}/{name}')}.metadata.json"


def attempt_names(storage: Storage, location: Folder) -> Iterator[AttemptName]:
    """Yield the folders of this catalog's attempts below a table's location."""
    for folder in (METADATA, HIDDEN_METADATA):
        for attempt in attempts_among(storage, location.folders(folder), _PREFIX):
            yield attempt._replace(name=f"{folder}/{attempt.name}")


def staged_folders(location: Folder) -> list[str]:
    """Return the folders of attempts below a table's location, including those of other catalogs."""
    return [
        f"{folder}/{name}"
        for folder in (METADATA, HIDDEN_METADATA)
        for name in location.folders(folder)
        if name.startswith(_PREFIX)
    ]


class ListingDigest:
    """A digest of a table's data files that does not depend on the order of listing.

    It covers path, size and modification time of each file. Digests of disjoint sets of files can be added, so that
    executors can list in parallel.
    """

    def __init__(self, text: str | None = None) -> None:
        """Create an empty digest, or one from its text."""
        self._sum, self._count = (0, 0) if text is None else self._parse(text)

    @staticmethod
    def _parse(text: str) -> tuple[int, int]:
        count, _, number = text.partition("-")
        return int(number, 16), int(count)

    def add(self, file: FileInfo) -> None:
        """Add a file."""
        text = f"{file.path}\0{file.size_bytes}\0{file.modified_at_ms}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(hashlib.blake2b(text, digest_size=_BITS // 8).digest(), "big")
        self._sum = (self._sum + number) % (1 << _BITS)
        self._count += 1

    def __add__(self, other: ListingDigest) -> ListingDigest:
        """Return the digest of the union of disjoint sets of files."""
        both = ListingDigest()
        both._sum, both._count = (self._sum + other._sum) % (1 << _BITS), self._count + other._count
        return both

    @property
    def file_count(self) -> int:
        """The number of files."""
        return self._count

    def __str__(self) -> str:
        """Return the digest as text: the number of files and 128 bits."""
        return f"{self._count}-{self._sum:0{_BITS // 4}x}"


class PartitionTotal(NamedTuple):
    """The totals of one partition.

    Attributes:
        ordinal: As in `SourceFolder`.
    """

    ordinal: int
    file_count: int
    row_count: int
    size_bytes: int


class Counted(NamedTuple):
    """The totals of all partitions, for results whose totals of single partitions are stored in files.

    Attributes:
        partition_count: The number of partitions that have data files.
        totals: A folder of Parquet files inside the attempt's folder, with the columns of `PartitionTotal`; several
            rows of one partition add up.
    """

    file_count: int
    row_count: int
    size_bytes: int
    partition_count: int
    totals: str


@dataclass(frozen=True)
class Staged:
    """The result of the Spark job of a migration's stage.

    Attributes:
        manifests: Manifests whose entries have neither a snapshot id nor a sequence number yet.
        totals: The totals of each partition that has files, ordered by ordinal; empty if `counted` is set.
        spellings: Field id → other names that files use for it.
        problems: The files that are not part of the table, with reasons; only the first of very many.
        listing: The digest of all listed files, including those that are not part of the table.
        counted: The sum of `totals`; None to compute it.
        unknown: Columns of files that the table does not have, as in `catalog.iceberg.footers.columns.Match`.
        problem_counts: Problem → the number of files that have it; None if `problems` is complete.
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
        files, rows, sizes = (sum(total[n] for total in self.totals) for n in (1, 2, 3))
        return Counted(files, rows, sizes, sum(total.file_count > 0 for total in self.totals), "")

    @property
    def file_count(self) -> int:
        """The number of data files."""
        return self._counted.file_count

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return self._counted.row_count

    @property
    def size_bytes(self) -> int:
        """The total size of the data files."""
        return self._counted.size_bytes

    @property
    def partition_count(self) -> int:
        """The number of partitions that have files."""
        return self._counted.partition_count

    @property
    def reading_properties(self) -> dict[str, str]:
        """Properties that the Iceberg table needs for Spark to read the files."""
        return {VECTORIZATION: "false"} if self.unvectorized else {}

    @property
    def warnings(self) -> list[str]:
        """Warnings about the files, one sentence per kind."""
        if not self.unvectorized:
            return []
        return [
            f"columns {', '.join(self.unvectorized)} have booleans stored with run-length encoding (RLE), which "
            f"Iceberg's vectorized reader for Spark does not decode; {VECTORIZATION} of the Iceberg table is set to "
            "false, which makes Spark read more slowly. Rewrite the data files, then set it to true"
        ]

    def count_problems(self, except_for: Collection[str] = ()) -> int:
        """Return the number of files that are not part of the table, except those with some problems."""
        counts = Counter(file.problem for file in self.problems) if self.problem_counts is None else self.problem_counts
        return sum(count for problem, count in counts.items() if problem not in except_for)

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "manifests": [manifest.as_json() for manifest in self.manifests],
            "totals": [list(total) for total in self.totals],
            "listing": self.listing,
            "spellings": {str(field): sorted(names) for field, names in self.spellings.items()},
            "problems": [[file.path, file.problem, file.message] for file in self.problems],
            "counted": None if self.counted is None else list(self.counted),
            "problem_counts": None if self.problem_counts is None else dict(self.problem_counts),
            "unknown": [[parent, list(path)] for parent, path in self.unknown],
            "unvectorized": list(self.unvectorized),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the result that `as_json` has stored."""
        from catalog.iceberg.manifests import WrittenManifest

        return cls(
            [WrittenManifest.from_json(manifest) for manifest in values["manifests"]],
            [PartitionTotal(*total) for total in values["totals"]],
            values["listing"],
            {int(field): tuple(names) for field, names in values["spellings"].items()},
            [RefusedFile(path, FileProblem(problem), message) for path, problem, message in values["problems"]],
            None if values["counted"] is None else Counted(*values["counted"]),
            values["problem_counts"],
            [(parent, tuple(path)) for parent, path in values["unknown"]],
            values.get("unvectorized", ()),
        )


def merged_spellings(spellings: Iterable[tuple[int, str]]) -> dict[int, tuple[str, ...]]:
    """Return the names that files use, by field id, in alphabetical order."""
    names: dict[int, set[str]] = {}
    for field, name in spellings:
        names.setdefault(field, set()).add(name)
    return {field: tuple(sorted(spellings)) for field, spellings in sorted(names.items())}


def require_complete(table: str, request: MigrationRequest, staged: Staged) -> None:
    """Check that the manifests have all files that the request does not skip.

    Raises:
        UnusableFilesError: Some files cannot be part of the table, and the request does not skip them.
        VerificationFailedError: Manifests and totals differ.
    """
    if refused := [file for file in staged.problems if file.problem not in request.skipped_problems]:
        raise UnusableFilesError(table, refused, staged.count_problems(except_for=request.skipped_problems))
    files = sum(manifest.file_count for manifest in staged.manifests)
    rows = sum(manifest.row_count for manifest in staged.manifests)
    if (files, rows) != (staged.file_count, staged.row_count):
        raise VerificationFailedError(
            f"table {table}: the manifests have {files:,} file(s) with {rows:,} row(s), but {staged.file_count:,} with "
            f"{staged.row_count:,} were counted; nothing was changed. Run the operation again"
        )


def write_staged(location: str, name: str, staged: Staged, metadata_location: str | None) -> None:
    """Write the list of an attempt's staged files, as its last step.

    Args:
        name: The attempt's folder, relative to the location.
        metadata_location: The location of the first metadata; None if they are written only with the commit.
    """
    with Folder(location).writing(f"{name}/{_STAGED}") as text:
        json.dump({**staged.as_json(), "metadata_location": metadata_location, _END: True}, text)
    reached(Point.STAGED)


def read_staged(location: str, name: str) -> tuple[Staged, str | None]:
    """Return the result of an attempt's stage, and the location of its metadata.

    Raises:
        VerificationFailedError: The list is missing or incomplete.
    """
    folder = Folder(location)
    path = f"{name}/{_STAGED}"
    if folder.exists(path):
        with folder.open_text(path) as text:
            written = text.read()
        # A truncated file lacks the closing brace.
        if written.endswith("}"):
            values = json.loads(written)
            return Staged.from_json(values), values["metadata_location"]
    raise VerificationFailedError(
        f"{location}/{path} is missing or incomplete; nothing was changed. Run the operation again, which stages the "
        "files again"
    )


def is_staged(location: str, name: str) -> bool:
    """Return whether an attempt has completed its stage."""
    return Folder(location).exists(f"{name}/{_STAGED}")


def forget_staged(location: Folder, name: str) -> None:
    """Delete the list of an attempt's staged files, so that the attempt no longer counts as complete."""
    location.delete_file(f"{name}/{_STAGED}")
