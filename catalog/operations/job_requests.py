"""Request types of the Spark jobs: one JSON file, the same class on both sides.

A job answers through the catalog (`Operations.finish_job`), never through its output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self

from catalog.errors import InvalidRequestError
from catalog.settings.fields import whole_number

_MOST_PARTITIONS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One attempt at one step of an operation.

    Attributes:
        attempt: The number that `Operations.start_job` gave; the job may commit only while it is the latest.
        table: `database.table`.
    """

    script: ClassVar[str]

    operation_id: str
    step: str
    attempt: int
    table: str

    def to_json(self) -> str:
        """Return the request as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            InvalidRequestError: It is not JSON of exactly this request's fields.
        """
        try:
            return cls(**json.loads(text))
        except (json.JSONDecodeError, TypeError) as error:
            names = ", ".join(each.name for each in fields(cls))
            raise InvalidRequestError(
                f"{cls.__name__} cannot be read from {text[:200]!r}: {error}; it takes {names}"
            ) from None


@dataclass(frozen=True, kw_only=True)
class SourceJob(JobRequest):
    """A job that reads the source files of a load, which the operation's row names.

    Attributes:
        keys, columns: (name, type) pairs. No mapping, because a request passes through databases whose JSON forgets the
            order of fields, and the order of the keys is the order of the path.
    """

    source_format: str
    source_options: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[tuple[str, str]] = ()
    keys: Sequence[tuple[str, str]] = ()
    format: str = "parquet"
    indexes: Mapping[str, list[str]] = field(default_factory=dict)
    invalid_partitions: str = "fail"
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Make the pairs tuples again, which JSON does not have."""
        for name in ("columns", "keys"):
            object.__setattr__(self, name, tuple((column, text) for column, text in getattr(self, name)))

    @property
    def key_types(self) -> dict[str, str]:
        """Partition key → type, in the order of the path."""
        return dict(self.keys)

    @property
    def column_types(self) -> dict[str, str]:
        """Declared column → type, in the order of the files if they have no header."""
        return dict(self.columns)


@dataclass(frozen=True, kw_only=True)
class ValidateSourceJob(SourceJob):
    """Parse the source files, and check the partitions that they would make. Creates the table if it is not there."""

    script: ClassVar[str] = "validate_source"


@dataclass(frozen=True, kw_only=True)
class WritePartitionsJob(SourceJob):
    """Write the data files of a load to its staging folder."""

    script: ClassVar[str] = "write_partitions"


@dataclass(frozen=True, kw_only=True)
class BuildPartitionIndexJob(JobRequest):
    """Build a CREATING partition index."""

    script: ClassVar[str] = "build_partition_index"

    index: str


@dataclass(frozen=True, kw_only=True)
class VerifyPartitionIndexJob(JobRequest):
    """Compare an ACTIVE partition index with its table, and repair what differs if asked to."""

    script: ClassVar[str] = "verify_partition_index"

    index: str
    repair: bool = False


@dataclass(frozen=True, kw_only=True)
class RewritePartitionsJob(JobRequest):
    """Write the new files of a rebalancing plan, which the operation's row tells, where no reader looks."""

    script: ClassVar[str] = "rewrite_partitions"


@dataclass(frozen=True, kw_only=True)
class VerifyRewriteJob(JobRequest):
    """Compare the new files of a rebalancing plan with the old ones.

    Attributes:
        folder: Of the new files, below the table's location.
    """

    script: ClassVar[str] = "verify_rewrite"

    folder: str


@dataclass(frozen=True, kw_only=True)
class StageMigrationJob(JobRequest):
    """List the files of a table that becomes an Iceberg table, read their footers, and write the manifests.

    The operation's row tells how it is to become one.

    Attributes:
        dry_run: Do all that, but for writing.
        threads: How many files a task reads at once; None for one where files are local, and many elsewhere.
        files_a_task: About how many files a task reads; None for a number that suits the table and the cores.
    """

    script: ClassVar[str] = "stage_migration"

    dry_run: bool = False
    threads: int | None = None
    files_a_task: int | None = None


@dataclass(frozen=True, kw_only=True)
class VerifyMigrationJob(JobRequest):
    """Compare what a Hive table reads with what the Iceberg table would read that it becomes.

    Attributes:
        partitions: How many partitions to compare, chosen evenly; None for all.
    """

    script: ClassVar[str] = "verify_migration"

    partitions: int | None = None

    def __post_init__(self) -> None:
        """Refuse a comparison of nothing, which would find no difference.

        Raises:
            WrongFieldError: The number is below 1.
        """
        if self.partitions is not None:
            whole_number("partitions", self.partitions, _MOST_PARTITIONS)


@dataclass(frozen=True, kw_only=True)
class MaintainIcebergJob(JobRequest):
    """Run Iceberg's own procedures on a table.

    Attributes:
        statements: As Spark understands them, with tables as `calve.database.table`.
    """

    script: ClassVar[str] = "maintain_iceberg"

    statements: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class RunStatementJob(JobRequest):
    """Run SQL statements, one after the other; those that an earlier attempt has run are not run again.

    Attributes:
        table: What the journal names: `catalog.statements.scripts.subject`.
        statements: Separated by semicolons.
        database: Where tables without a database are.
        keep_going: Go on after a statement that fails.
    """

    script: ClassVar[str] = "run_statement"

    statements: str
    database: str = "default"
    keep_going: bool = False


@dataclass(frozen=True, kw_only=True)
class CountValuesJob(JobRequest):
    """Count how the values of the partition column are spread in some partitions of a table."""

    script: ClassVar[str] = "count_values"

    partition_ids: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class CheckQualityJob(JobRequest):
    """Check the partitions that an operation added, by the rules of the table's YAML entry."""

    script: ClassVar[str] = "check_quality"

    rules: Mapping[str, Any] = field(default_factory=dict)


_TYPES: Mapping[str, type[JobRequest]] = {
    request.script: request
    for request in (
        ValidateSourceJob,
        WritePartitionsJob,
        BuildPartitionIndexJob,
        VerifyPartitionIndexJob,
        RewritePartitionsJob,
        VerifyRewriteJob,
        StageMigrationJob,
        VerifyMigrationJob,
        MaintainIcebergJob,
        RunStatementJob,
        CountValuesJob,
        CheckQualityJob,
    )
}


def request_json(script: str, values: Mapping[str, Any]) -> str:
    """Return the JSON of a job's request, checked by the class that the job will read it with.

    Args:
        script: The job's script, without `.py`; a request to a script of somebody else is not checked.

    Raises:
        InvalidRequestError: A field is missing, unknown or wrong.
    """
    text = json.dumps(values)
    request = _TYPES.get(script)
    return text if request is None else request.from_json(text).to_json()
