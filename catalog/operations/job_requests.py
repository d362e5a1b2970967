"""Request types of the Spark jobs: one JSON document, the same class on both sides.

A job reports through the catalog (`Operations.finish_job`), never through its output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from catalog.errors import InvalidRequestError
from catalog.settings.contracts import Contract
from catalog.settings.fields import whole_number
from catalog.settings.merge_rules import MergeRule

CREATED_TABLE = "created_table"
"""The field of a validation's report that says that the load has created its table."""

SKIP = "skip"
"""The choice of `bad_files` to load the other files, and of `invalid_partitions` to load the other partitions."""

ALLOW = "allow"
"""The choice of `null_keys` to load rows with null as a partition key."""

_MOST_PARTITIONS = 1_000_000_000

_TYPES: dict[str, type[JobRequest]] = {}
"""Script → the request type that declares it."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One attempt at one step of an operation.

    Attributes:
        attempt: The number from `Operations.start_job`; the job may commit only while it is the latest.
        table: `database.table`.
    """

    script: ClassVar[str]

    operation_id: str
    step: str
    attempt: int
    table: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register the request type of a script."""
        super().__init_subclass__(**kwargs)
        if "script" in vars(cls):
            if cls.script in _TYPES and _TYPES[cls.script].__qualname__ != cls.__qualname__:
                raise TypeError(f"script {cls.script} has the request type {_TYPES[cls.script].__qualname__}")
            _TYPES[cls.script] = cls

    def to_json(self) -> str:
        """Return the request as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the JSON of `to_json`.

        Raises:
            InvalidRequestError: It is not JSON with exactly this request's fields, or a field is of another type.
        """
        try:
            return cls(**cls._checked(json.loads(text)))
        except (ValueError, TypeError, RecursionError) as error:
            names = ", ".join(known.name for known in fields(cls))
            raise InvalidRequestError(
                f"{cls.__name__} cannot be parsed from {text[:200]!r}: {error}; its fields are {names}"
            ) from None

    @classmethod
    def _checked(cls, values: object) -> dict[str, Any]:
        if not isinstance(values, dict):
            raise TypeError(f"{values!r} is not a JSON object")
        types, names = get_type_hints(cls), {known.name for known in fields(cls)}
        if unknown := [name for name in values if name not in names]:
            raise TypeError(f"unknown {', '.join(unknown)}")
        for name, value in values.items():
            if not _has_type(value, types[name]):
                raise TypeError(f"{name} is {value!r}")
        return values


@dataclass(frozen=True, kw_only=True)
class SourceJob(JobRequest):
    """A job that reads the source files of a load, which are listed in the operation's row.

    Attributes:
        required: Columns that each file has to have, without nulls.
        key_expressions: Partition key → the Spark SQL expression over the columns of the files that gives its value.
        contract: The treatment of unknown columns and unfit values (`catalog.settings.contracts.Contract.from_config`).
        bad_files: Whether a file that cannot be loaded makes the load `fail`, or is set aside (`skip`).
        null_keys: Whether rows may have null as a partition key: `refuse` or `allow`.
        merge: The rule of a load with mode `merge` (`catalog.settings.merge_rules.MergeRule.from_config`).
        keys, columns: (name, type) pairs. Not a mapping, because a request passes through databases whose JSON does not
            keep the order of fields, and the order of the keys is that of the path.
    """

    source_format: str
    source_options: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[tuple[str, str]] = ()
    keys: Sequence[tuple[str, str]] = ()
    format: str = "parquet"
    indexes: Mapping[str, list[str]] = field(default_factory=dict)
    invalid_partitions: str = "fail"
    mode: str = ""
    required: Sequence[str] = ()
    null_keys: str = "refuse"
    bad_files: str = "fail"
    merge: Mapping[str, Any] = field(default_factory=dict)
    key_expressions: Mapping[str, str] = field(default_factory=dict)
    contract: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Restore the tuples, which JSON turns into lists."""
        for name in ("columns", "keys"):
            object.__setattr__(self, name, tuple((column, text) for column, text in getattr(self, name)))
        object.__setattr__(self, "required", tuple(self.required))

    @property
    def lowered_options(self) -> dict[str, str]:
        """`source_options` by their names in lower case, whose case does not matter to Spark."""
        return {name.lower(): value for name, value in self.source_options.items()}

    @property
    def merge_rule(self) -> MergeRule:
        """The rule of a load with mode `merge`.

        Raises:
            InvalidConfigurationError: The request has none.
        """
        return MergeRule.from_config(self.merge)

    @property
    def schema_contract(self) -> Contract:
        """The treatment of columns that the table does not have, and of values that do not fit their columns.

        Raises:
            InvalidConfigurationError: The request has an unknown word.
        """
        return Contract.from_config(self.contract)

    @property
    def key_types(self) -> dict[str, str]:
        """Partition key → type, in the order of the path."""
        return dict(self.keys)

    @property
    def column_types(self) -> dict[str, str]:
        """Declared column → type, in file order if the files have no header."""
        return dict(self.columns)


@dataclass(frozen=True, kw_only=True)
class ValidateSourceJob(SourceJob):
    """Parse the source files and check the resulting partitions. Create the table if it does not exist."""

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
    """Compare an ACTIVE partition index with its table, and repair differences if requested."""

    script: ClassVar[str] = "verify_partition_index"

    index: str
    repair: bool = False


@dataclass(frozen=True, kw_only=True)
class RewritePartitionsJob(JobRequest):
    """Write the new files of a rebalancing plan, which is in the operation's row, outside the folders of readers."""

    script: ClassVar[str] = "rewrite_partitions"


@dataclass(frozen=True, kw_only=True)
class VerifyRewriteJob(JobRequest):
    """Compare the new files of a rebalancing plan with the old ones.

    Attributes:
        folder: The folder of the new files, below the table's location.
    """

    script: ClassVar[str] = "verify_rewrite"

    folder: str


@dataclass(frozen=True, kw_only=True)
class StageMigrationJob(JobRequest):
    """List the files of a table that becomes an Iceberg table, read their footers, and write the manifests.

    The operation's row has the options of the migration.

    Attributes:
        dry_run: Do not write the manifests.
        threads: Number of files that a task reads concurrently; None for one on local disks and many elsewhere.
        files_a_task: Approximate number of files per task; None to derive it from the table and the number of cores.
    """

    script: ClassVar[str] = "stage_migration"

    dry_run: bool = False
    threads: int | None = None
    files_a_task: int | None = None


@dataclass(frozen=True, kw_only=True)
class VerifyMigrationJob(JobRequest):
    """Compare the rows of a Hive table with those that the Iceberg table would return.

    Attributes:
        partitions: Number of partitions to compare, spread evenly; None for all.
    """

    script: ClassVar[str] = "verify_migration"

    partitions: int | None = None

    def __post_init__(self) -> None:
        """Refuse an empty comparison, which would find no difference.

        Raises:
            WrongFieldError: The number is less than 1.
        """
        if self.partitions is not None:
            whole_number("partitions", self.partitions, _MOST_PARTITIONS)


@dataclass(frozen=True, kw_only=True)
class MaintainIcebergJob(JobRequest):
    """Run Iceberg's own procedures on a table.

    Attributes:
        statements: In Spark's SQL, with tables as `calve.database.table`.
    """

    script: ClassVar[str] = "maintain_iceberg"

    statements: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class RunStatementJob(JobRequest):
    """Run SQL statements in order, without those that an earlier attempt completed.

    Attributes:
        table: The journal's table: `catalog.statements.scripts.subject`.
        statements: Separated by semicolons.
        database: Database of tables that are named without one.
        keep_going: Continue after a statement that fails.
    """

    script: ClassVar[str] = "run_statement"

    statements: str
    database: str = "default"
    keep_going: bool = False


@dataclass(frozen=True, kw_only=True)
class CountValuesJob(JobRequest):
    """Count the values of the partition column in some partitions of a table."""

    script: ClassVar[str] = "count_values"

    partition_ids: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class CompactPartitionsJob(JobRequest):
    """Compact the partitions of a plan, which is in the operation's row."""

    script: ClassVar[str] = "compact_partitions"


@dataclass(frozen=True, kw_only=True)
class CheckQualityJob(JobRequest):
    """Check the partitions that an operation added by the quality rules of the table's YAML entry."""

    script: ClassVar[str] = "check_quality"

    rules: Mapping[str, Any] = field(default_factory=dict)


def check_request(script: str, values: Mapping[str, Any]) -> None:
    """Check a job's request with the class that the job will read it with.

    Args:
        script: The job's script, without `.py`; the request of a script that is not Calve's is not checked.
        values: All fields but the number of the attempt, which is not started yet.

    Raises:
        InvalidRequestError: A field is missing, unknown or wrong.
    """
    if script in _TYPES:
        try:
            text = json.dumps({**values, "attempt": 1})
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidRequestError(f"the request of {script} has a value that JSON does not have: {error}") from None
        _TYPES[script].from_json(text)


def request_type(script: str) -> type[JobRequest]:
    """Return the class of the requests of one of Calve's scripts."""
    return _TYPES[script]


def _has_type(value: object, hint: Any) -> bool:
    """Return whether a value from JSON is of an annotated type."""
    origin, parameters = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_has_type(value, choice) for choice in parameters)
    if origin is Mapping:
        return isinstance(value, dict) and all(_has_type(item, parameters[1]) for item in value.values())
    if origin is tuple:
        return isinstance(value, list) and len(value) == len(parameters) and all(map(_has_type, value, parameters))
    if origin in (Sequence, list):
        return isinstance(value, list) and all(_has_type(item, parameters[0]) for item in value)
    return hint is Any or type(value) is hint
