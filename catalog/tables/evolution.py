"""Evolution of a table by a load: columns that its files have in addition, and wider types.

A load writes its files with the columns that the table is going to have, ids included, and the transaction that makes
the files visible changes the table. Until then, no reader knows the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from catalog.errors import ConflictError
from catalog.model import Column, Table
from catalog.tables.altering import TableChange, changed_columns
from catalog.tables.columns import TableColumns, with_columns
from catalog.tables.definitions import Definitions
from catalog.tables.normalising import check_columns
from catalog.tables.spark_schema import with_spark_schema


@dataclass(frozen=True)
class Evolution:
    """A planned change of a table's columns.

    Attributes:
        added: New columns, with the ids that they are going to have.
        widened: Column → its type before and after.
    """

    added: tuple[Column, ...] = ()
    widened: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether anything changes."""
        return bool(self.added or self.widened)

    def __str__(self) -> str:
        """Return the change in words, such as `column note string, id bigint instead of int`."""
        added = [f"column {column.name} {column.type}" for column in self.added]
        return ", ".join([*added, *(f"{name} {new} instead of {old}" for name, (old, new) in self.widened.items())])

    @classmethod
    def between(cls, before: Table, after: Table) -> Evolution:
        """Return the evolution that makes one state of a table the other, which `evolved` has returned."""
        known = {column.id: column for column in before.columns}
        added = tuple(column for column in after.columns if column.id not in known)
        types = {column.name: (known[column.id].type, column.type) for column in after.columns if column.id in known}
        return cls(added, {name: change for name, change in types.items() if change[0] != change[1]})

    def as_json(self) -> dict[str, Any]:
        """Return the evolution for a report."""
        return {
            "added": [{"name": column.name, "type": column.type, "id": column.id} for column in self.added],
            "widened": [{"name": name, "from": before, "to": after} for name, (before, after) in self.widened.items()],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Evolution:
        """Return the evolution that `as_json` has returned; an empty one for None."""
        stored = stored or {}
        return cls(
            tuple(Column(column["name"], column["type"], id=column["id"]) for column in stored.get("added", ())),
            {change["name"]: (change["from"], change["to"]) for change in stored.get("widened", ())},
        )

    def of(self, table: Table) -> Table:
        """Return a table after the evolution.

        Raises:
            ConflictError: The table's columns have changed since the evolution was planned.
        """
        types = {column.name: column.type for column in table.columns}
        names = [*types, *table.key_names]
        is_as_planned = all(types.get(name) == before for name, (before, _) in self.widened.items())
        if is_as_planned and not any(column.name in names for column in self.added):
            after = evolved(table, self.added, {name: after for name, (_, after) in self.widened.items()})
            if Evolution.between(table, after).as_json() == self.as_json():
                return after
        raise ConflictError(
            f"the columns of table {table.full_name} were changed while a load was adding or widening columns; nothing "
            "was added. Run the load again"
        )

    def apply(self, connection: Connection, definitions: Definitions, table: Table) -> Table:
        """Change a table in the caller's transaction, which has locked it exclusively; return it as it is then.

        Raises:
            ConflictError: As for `of`.
        """
        after = self.of(table)
        columns = TableColumns.of(after)
        properties = with_spark_schema(dict(table.properties), TableColumns.of(table), columns)
        definitions.update_table(connection, table, columns=columns, properties=properties)
        return after


def evolved(table: Table, added: Sequence[Column], widened: Mapping[str, str]) -> Table:
    """Return a table with further columns and wider types, as ALTER TABLE would change it.

    Args:
        added: New columns; their ids are ignored, and assigned here.
        widened: Column → its new type.

    Raises:
        InvalidTableError: A column cannot have this name or type.
        UnsupportedChangeError: A new type does not have all values of the old one.
    """
    known = {column.name: column for column in table.columns}
    changed = {name: replace(known[name], type=text) for name, text in widened.items()}
    change = TableChange(add_columns=[(column.name, column.type) for column in added], change_columns=changed)
    columns, _ = changed_columns(table, change, is_empty=False)
    check_columns(table.full_name, columns.columns, columns.keys)
    return with_columns(table, columns)
