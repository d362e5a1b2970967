"""The form of a migration: the tables and the options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from catalog.errors import InvalidRequestError, WrongFieldError
from catalog.migration.requests import MigrationRequest, OnUnusable

AS_TRINO = "as Trino"
"""The form's choice of Trino's rules for timestamps."""


@dataclass(frozen=True)
class MigrationForm:
    """The fields of a form of `migrate_hive_to_iceberg`.

    Attributes:
        tables: Names and patterns, see `catalog.tables.patterns`.
        request: The options of each table's migration.
        dry_run: Only report the plan.
        read_files: In a dry run, read the footers, too.
        verified_partitions: The number of partitions of each table to compare; None for all.
    """

    tables: Sequence[str]
    request: MigrationRequest
    dry_run: bool = True
    read_files: bool = True
    verified_partitions: int | None = None

    @classmethod
    def read(cls, form: Mapping[str, Any]) -> Self:
        """Return the fields of a form.

        Raises:
            WrongFieldError: A field is missing or invalid.
        """
        tables = form.get("tables")
        if not tables:
            raise WrongFieldError("tables", "there is none; write database.table, or a pattern such as database.*")
        timestamps = form.get("timestamps")
        try:
            request = MigrationRequest(
                recursive_directory=form.get("recursive_directory", "fail"),
                timestamps=None if timestamps in (None, AS_TRINO) else timestamps,
                unusable_files=OnUnusable(form.get("unusable_files", OnUnusable.FAIL)),
                verify=bool(form.get("verify", True)),
                flip_source=bool(form.get("flip_source", False)),
            )
        except ValueError as error:
            raise WrongFieldError("unusable_files", str(error)) from None
        except InvalidRequestError as error:
            name, _, problem = str(error).partition(" ")
            raise WrongFieldError(name, problem) from None
        return cls(
            tuple(tables),
            request,
            dry_run=bool(form.get("dry_run", True)),
            read_files=bool(form.get("read_files", True)),
            verified_partitions=form.get("verified_partitions"),
        )
