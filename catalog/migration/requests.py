"""The journaled request of a migration, and the operation that has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, Self

from catalog.errors import FileProblem, InvalidRequestError, OperationReusedError
from catalog.operations.records import Operation, OperationKind

RecursiveDirectory = Literal["true", "false", "fail"]
"""The handling of nested folders: include their files, ignore them, or refuse the migration."""

Timestamps = Literal["with zone", "without zone"]

_KINDS = (OperationKind.MIGRATE, OperationKind.SNAPSHOT, OperationKind.ADD_FILES)


class OnUnusable(StrEnum):
    """The handling of foreign and empty files, which cannot be part of the table."""

    FAIL = "fail"
    SKIP = "skip"


class OnDuplicate(StrEnum):
    """The handling of files to add that an Iceberg table already has."""

    FAIL = "fail"
    SKIP = "skip"
    ADD = "add"


@dataclass(frozen=True)
class MigrationRequest:
    """The request of a migration.

    Attributes:
        kind: MIGRATE turns the table itself into an Iceberg table. SNAPSHOT creates an Iceberg table over the same
            files. ADD_FILES adds the files to an existing Iceberg table.
        recursive_directory: Whether files in nested folders belong to the table or partition.
        timestamps: The Iceberg type of Hive's timestamps; None for Trino's rules, which depend on the format.
        unusable_files: Whether to refuse the migration or to skip the files if some are foreign or empty.
        verify: Refuse the flip until a comparison of both sides has succeeded.
        target: The other table, `database.name`; None for MIGRATE.
        target_location: For SNAPSHOT: the folder of the metadata and of new files; None for the default one.
        partitions: For ADD_FILES: partition key → value, to add only partitions with these values; None for all.
        duplicate_files: For ADD_FILES: the handling of files that the target already has.
        flip_source: Also switch the table's entry in the metastore that it was imported from to Iceberg.
        fingerprint: The fingerprint of the accepted plan.
        location: The location of the Iceberg table, which contains its metadata; set when the operation begins.
    """

    kind: OperationKind = OperationKind.MIGRATE
    recursive_directory: RecursiveDirectory = "fail"
    timestamps: Timestamps | None = None
    unusable_files: OnUnusable = OnUnusable.FAIL
    verify: bool = True
    target: str | None = None
    target_location: str | None = None
    partitions: Mapping[str, str | None] | None = None
    duplicate_files: OnDuplicate = OnDuplicate.FAIL
    flip_source: bool = False
    fingerprint: str | None = None
    location: str | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidRequestError: A field has an unknown value, or does not apply to the kind.
        """
        _choose("kind", self.kind, _KINDS)
        _choose("recursive_directory", self.recursive_directory, ("true", "false", "fail"))
        _choose("timestamps", self.timestamps, ("with zone", "without zone", None))
        _choose("unusable_files", self.unusable_files, tuple(OnUnusable))
        _choose("duplicate_files", self.duplicate_files, tuple(OnDuplicate))
        if (self.target is None) != (self.kind is OperationKind.MIGRATE):
            raise InvalidRequestError(
                f"target is {self.target!r}; {self.kind} "
                + (
                    "changes the table itself and has no target"
                    if self.target
                    else "needs the name of an Iceberg table"
                )
            )
        if self.target_location is not None and self.kind is not OperationKind.SNAPSHOT:
            raise InvalidRequestError(
                f"target_location is {self.target_location!r}, but {self.kind} has no target location"
            )
        if self.flip_source and self.kind is not OperationKind.MIGRATE:
            raise InvalidRequestError(f"flip_source is true, but {self.kind} does not change the Hive table")
        if self.partitions is not None and self.kind is not OperationKind.ADD_FILES:
            raise InvalidRequestError(
                f"partitions are {dict(self.partitions)}, but {self.kind} includes all partitions of a table"
            )

    @property
    def skipped_problems(self) -> tuple[FileProblem, ...]:
        """The problems of files that the migration skips; files with other problems prevent it."""
        return (FileProblem.EMPTY, FileProblem.FOREIGN) if self.unusable_files is OnUnusable.SKIP else ()

    @property
    def asked(self) -> dict[str, Any]:
        """The fields that the user has set, as JSON values."""
        return {**self.as_json(), "fingerprint": None, "location": None}

    def as_json(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        values = asdict(self)
        return {**values, "partitions": None if self.partitions is None else dict(self.partitions)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the request that `as_json` has stored, ignoring unknown fields.

        Raises:
            InvalidRequestError: It has a value that this version does not know.
        """
        known = {known_field.name for known_field in fields(cls)}
        arguments = {name: value for name, value in values.items() if name in known}
        try:
            types = {
                "kind": OperationKind(arguments["kind"]),
                "unusable_files": OnUnusable(arguments["unusable_files"]),
                "duplicate_files": OnDuplicate(arguments["duplicate_files"]),
            }
        except ValueError as error:
            raise InvalidRequestError(
                f"the request of a migration cannot be read: {error}; use the version of Calve that started it"
            ) from None
        return cls(**{**arguments, **types})


@dataclass(frozen=True)
class MigrationOperation(Operation):
    """The operation of a migration, with its request parsed for all steps."""

    parsed_request: MigrationRequest = field(kw_only=True)

    @classmethod
    def of(cls, operation: Operation) -> Self:
        """Return the operation of a migration with its parsed request.

        Raises:
            OperationReusedError: The operation is of another kind.
            InvalidRequestError: The request has a value that this version does not know.
        """
        if operation.kind not in _KINDS:
            raise OperationReusedError(operation.id, f"{operation.kind} of table {operation.table}")
        return cls(**vars(operation), parsed_request=MigrationRequest.from_json(operation.request))


def _choose(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        allowed = ", ".join("none" if choice is None else repr(str(choice)) for choice in choices)
        raise InvalidRequestError(f"{name} is {value!r}; it can be {allowed}")
