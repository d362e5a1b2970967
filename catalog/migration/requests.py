"""What a migration is asked to do, as it is journaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Literal, Self

from catalog.errors import InvalidRequestError
from catalog.operations.records import OperationKind

RecursiveDirectory = Literal["true", "false", "fail"]
"""What becomes of folders inside a partition's: their files count, they do not, or they refuse the migration."""

Timestamps = Literal["with zone", "without zone"]


class OnUnusable(StrEnum):
    """What becomes of files that cannot be the table's: foreign and empty ones."""

    FAIL = "fail"
    SKIP = "skip"


class OnDuplicate(StrEnum):
    """What becomes of files that an Iceberg table has already and that should be added."""

    FAIL = "fail"
    SKIP = "skip"
    ADD = "add"


@dataclass(frozen=True)
class MigrationRequest:
    """How a Hive table becomes an Iceberg table.

    Attributes:
        kind: MIGRATE: the table itself becomes one. SNAPSHOT: one is made beside it, of the same files. ADD_FILES: its
            files are added to one that is there.
        recursive_directory: Whether files in folders inside the table's, or a partition's, belong to it.
        timestamps: What Hive's timestamps become; None for Trino's rules by the format.
        unusable_files: Whether foreign and empty files refuse the migration or are passed over.
        verify: The flip is refused until a comparison of both sides has succeeded.
        target: The other table, `database.name`; None for MIGRATE.
        target_location: For SNAPSHOT: the folder of the metadata, and of what is written later; None for the usual one.
        partitions: Partition key → value: only partitions with these values are added; None for all.
        duplicate_files: Of files that are added.
        flip_source: The table's own entry in the metastore that it was imported from becomes the Iceberg table's, too.
        fingerprint: Of the plan that was agreed to.
        location: Of the Iceberg table, below which its metadata go; known from the beginning of the operation on.
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
        """Refuse what no migration can be asked.

        Raises:
            InvalidRequestError: A choice is none.
        """
        _choose("kind", self.kind, (OperationKind.MIGRATE, OperationKind.SNAPSHOT, OperationKind.ADD_FILES))
        _choose("recursive_directory", self.recursive_directory, ("true", "false", "fail"))
        _choose("timestamps", self.timestamps, ("with zone", "without zone", None))
        _choose("unusable_files", self.unusable_files, tuple(OnUnusable))
        _choose("duplicate_files", self.duplicate_files, tuple(OnDuplicate))
        if (self.target is None) != (self.kind is OperationKind.MIGRATE):
            raise InvalidRequestError(
                f"target is {self.target!r}; {self.kind} "
                + ("changes the table itself and has none" if self.target else "needs the name of an Iceberg table")
            )
        if self.target_location is not None and self.kind is not OperationKind.SNAPSHOT:
            raise InvalidRequestError(f"target_location is {self.target_location!r}; {self.kind} has none")
        if self.flip_source and self.kind is not OperationKind.MIGRATE:
            raise InvalidRequestError(f"flip_source is true; {self.kind} leaves the Hive table as it is")
        if self.partitions is not None and self.kind is not OperationKind.ADD_FILES:
            raise InvalidRequestError(f"partitions are {dict(self.partitions)}; {self.kind} takes all of a table")

    @property
    def asked(self) -> dict[str, Any]:
        """What was asked, without what became of it; plain values."""
        return {**self.as_json(), "fingerprint": None, "location": None}

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        values = asdict(self)
        return {**values, "partitions": None if self.partitions is None else dict(self.partitions)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return what `as_json` wrote."""
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in values.items() if name in known}
        return cls(
            **{
                **given,
                "kind": OperationKind(given["kind"]),
                "unusable_files": OnUnusable(given["unusable_files"]),
                "duplicate_files": OnDuplicate(given["duplicate_files"]),
            }
        )


def _choose(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        texts = ", ".join("none" if each is None else repr(str(each)) for each in choices)
        raise InvalidRequestError(f"{name} is {value!r}; it can be {texts}")
