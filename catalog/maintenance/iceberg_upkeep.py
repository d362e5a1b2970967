"""Maintenance of Iceberg tables, as statements: Iceberg's own procedures, and Calve's where files are deleted.

Iceberg's `expire_snapshots` and `remove_orphan_files` delete files that other tables need. The statements have their
names, but Calve runs them: `catalog.maintenance.iceberg_files`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from sqlalchemy import Connection

from catalog.errors import WrongFieldError
from catalog.files.locations import overlap, reach_key
from catalog.iceberg.jdbc import CATALOG
from catalog.iceberg.pointers import shared_locations
from catalog.model import Table, TableKind
from catalog.model.identifiers import TableName
from catalog.settings.fields import days, flag, require_known, texts, whole_number

_FIELD = r"[^;'\"]+"
_CHANGE = re.compile(rf"(ADD|DROP|REPLACE)\s+PARTITION\s+FIELD\s+{_FIELD}", re.IGNORECASE)
_MEBIBYTE = 1024 * 1024
_MOST_MEBIBYTES = 1024 * 1024
_MOST_SNAPSHOTS = 1_000_000
_FLAGS = frozenset({"rewrite_data_files", "expire_snapshots", "remove_orphan_files", "dry_run"})
_ALTER = "ALTER TABLE "
_EXPIRE, _REMOVE_ORPHANS = "expire_snapshots", "remove_orphan_files"
_TIME = "%Y-%m-%d %H:%M:%S"
_DELETION = re.compile(
    rf"CALL {CATALOG}\.system\.({_EXPIRE}|{_REMOVE_ORPHANS})\(table => .*, older_than => TIMESTAMP '([^']+)'"
    r"(?:, retain_last => ([0-9]+))?\)"
)


@dataclass(frozen=True)
class Deletion:
    """A statement that deletes files.

    Attributes:
        before_ms: What is older is deleted.
        retain_last: The number of snapshots to keep regardless of age; None to delete orphan files.
    """

    before_ms: int
    retain_last: int | None


@dataclass(frozen=True)
class TableMaintenance:
    """The fields of a form of `maintain_iceberg`.

    Attributes:
        tables: Names and patterns, see `catalog.tables.patterns`.
        partition_fields: Changes of the partition spec, such as `ADD PARTITION FIELD days(at)`; existing files keep
            their spec until they are rewritten.
        rewrite_data_files: Compact small files.
        target_file_mib: The target size of files in MiB; None for the table's setting.
        expire_snapshots: Expire snapshots, and delete the files in the table's folder that only they refer to.
        older_than_days: The minimum age of expired snapshots.
        retain_last: The number of latest snapshots to keep regardless of age.
        remove_orphan_files: Delete files in the table's folder that no metadata refer to, if they are at least
            `orphan_days` old.
        orphan_days: The minimum age of deleted orphan files.
        dry_run: Only report the statements that would be run.
    """

    tables: Sequence[str]
    partition_fields: Sequence[str] = ()
    rewrite_data_files: bool = True
    target_file_mib: int | None = None
    expire_snapshots: bool = True
    older_than_days: float = 5
    retain_last: int = 1
    remove_orphan_files: bool = False
    orphan_days: float = 3
    dry_run: bool = True

    @classmethod
    def read(cls, form: Mapping[str, Any]) -> Self:
        """Return the fields of a form.

        Raises:
            WrongFieldError: A field is missing, unknown or invalid.
        """
        require_known(form, list(cls.__dataclass_fields__))
        if not (tables := texts("tables", form.get("tables"))):
            raise WrongFieldError("tables", "there is none; write database.table, or a pattern such as database.*")
        changes = texts("partition_fields", form.get("partition_fields"))
        for change in changes:
            if not _CHANGE.fullmatch(change):
                raise WrongFieldError(
                    "partition_fields", f"{change!r} is no change; write for instance ADD PARTITION FIELD days(at)"
                )
        for name in _FLAGS & form.keys():
            flag(name, form[name])
        for name in ("older_than_days", "orphan_days"):
            days(name, form.get(name, 0))
        if form.get("remove_orphan_files") and form.get("orphan_days", 3) < 1:
            raise WrongFieldError("orphan_days", "files of commits under way would be deleted; give at least 1")
        whole_number("retain_last", form.get("retain_last", 1), _MOST_SNAPSHOTS)
        if form.get("target_file_mib") is not None:
            whole_number("target_file_mib", form["target_file_mib"], _MOST_MEBIBYTES)
        return cls(**{**form, "tables": tables, "partition_fields": changes})

    @property
    def deletes_files(self) -> bool:
        """Whether the statements may delete files."""
        return self.expire_snapshots or self.remove_orphan_files

    def statements(self, table: str, now: datetime, *, may_delete: bool = True) -> Iterator[str]:
        """Yield the statements for one table, in execution order.

        Args:
            table: `database.table`.
            now: The time in UTC from which ages are counted.
            may_delete: False to omit statements that delete files.
        """
        database, name = TableName.parse(table)
        for change in self.partition_fields:
            yield f"{_ALTER}{CATALOG}.`{database}`.`{name}` {change}"
        argument = f"table => '`{database}`.`{name}`'"
        if self.rewrite_data_files:
            size = self.target_file_mib
            options = f", options => map('target-file-size-bytes', '{size * _MEBIBYTE}')" if size else ""
            yield f"CALL {CATALOG}.system.rewrite_data_files({argument}{options})"
        if self.expire_snapshots and may_delete:
            then = _before(now, self.older_than_days)
            yield f"CALL {CATALOG}.system.{_EXPIRE}({argument}, {then}, retain_last => {self.retain_last})"
        if self.remove_orphan_files and may_delete:
            yield f"CALL {CATALOG}.system.{_REMOVE_ORPHANS}({argument}, {_before(now, self.orphan_days)})"


def deletion_of(statement: str) -> Deletion | None:
    """Return what one of `TableMaintenance.statements` deletes; None if it deletes no files."""
    found = _DELETION.fullmatch(statement)
    if found is None:
        return None
    before = datetime.strptime(found[2], _TIME).replace(tzinfo=UTC)
    return Deletion(int(before.timestamp() * 1_000), None if found[3] is None else int(found[3]))


def changes_spec(statement: str) -> bool:
    """Return whether one of `TableMaintenance.statements` changes the partition spec, so that it fails if repeated."""
    return statement.startswith(_ALTER)


def sharing_tables(connection: Connection, table: Table, tables: Iterable[Table]) -> list[str]:
    """Return the other tables that share files with an Iceberg table, for instance the Hive table of a snapshot.

    Iceberg does not know about them: after it has rewritten a shared file, it deletes the file with the last snapshot
    that refers to it.

    Args:
        tables: All tables of the catalog.
    """
    shared = [(reach_key(location), f"{database}.{name}") for location, database, name in shared_locations(connection)]
    mine = [location for location, name in shared if name == table.full_name]
    others = (other for other in tables if other.full_name != table.full_name and other.kind is not TableKind.VIEW)
    reaches = ((other.full_name, reach_key(other.location)) for other in others) if mine else ()
    sharing = {name for name, reach in reaches if any(overlap(reach, location) for location in mine)}
    root = reach_key(table.location)
    sharing |= {name for location, name in shared if name != table.full_name and overlap(location, root)}
    return sorted(sharing)


def _before(now: datetime, days: float) -> str:
    return f"older_than => TIMESTAMP '{now - timedelta(days=days):{_TIME}}'"
