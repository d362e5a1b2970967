"""The identity of columns: their ids, and their names in data files.

A column keeps its id when it is renamed, and no other column of the table ever gets that id; the same is true of the
fields inside a column, whose ids are from the same series, because Iceberg's bounds of files are by id. A name used in
data files belongs to one column for good, even after that column was renamed or dropped. Reading a file by these names
is therefore the same as reading it by ids, in every format and whenever the file was written. A column whose name
belongs to another column (`note`, after the first `note` became `remark`) is stored as `note__7`.

Source: Delta Lake's column mapping, whose physical names are stable; Iceberg's specification, "Schema Evolution".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from catalog.errors import InvalidTableError, UnsupportedChangeError
from catalog.model import Column, FileFormat, Table
from catalog.types.names import ALIASES

_FOUND_BY_NAME = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO)
NESTED_TYPE = re.compile(r"\s*(array|map|struct)\s*<", re.IGNORECASE)


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table, with ids.

    Attributes:
        columns, keys: As `Table` has them.
        dropped: Former columns, kept because files still use their names.
        last_id: The highest id ever given to a column of the table.
    """

    columns: tuple[Column, ...]
    keys: tuple[Column, ...]
    dropped: tuple[Column, ...] = ()
    last_id: int = 0

    @classmethod
    def of(cls, table: Table) -> TableColumns:
        """Return the columns of a table."""
        return cls(table.columns, table.partition_keys, table.dropped_columns, table.last_column_id)

    @property
    def owners(self) -> dict[str, int]:
        """Column ids by the names in files."""
        every = (*self.dropped, *self.columns, *self.keys)
        return {name: column.id for column in every if column.id for name in column.stored_names}

    def numbered(self) -> TableColumns:
        """Return a copy in which each column has an id, and names in files that no other column has.

        The fields inside of columns have ids, too.
        """
        owners = self.owners
        dropped, last_id = _with_part_ids(self.dropped, self.last_id)
        known, last_id = _with_part_ids((*self.columns, *self.keys), last_id)
        identified: list[Column] = []
        for column in known:
            if column.id == 0:
                last_id += 1
                is_taken = owners.get(column.name, 0) != 0
                names = (_free_name(f"{column.name}__{last_id}", owners),) if is_taken else ()
                column = replace(column, id=last_id, file_names=names)
                owners.update(dict.fromkeys(column.stored_names, last_id))
            identified.append(column)
        identified, last_id = _with_part_ids(identified, last_id)
        count = len(self.columns)
        columns, keys = tuple(identified[:count]), tuple(identified[count:])
        return replace(self, columns=columns, keys=keys, dropped=tuple(dropped), last_id=last_id)

    def dropping(self, names: Iterable[str]) -> TableColumns:
        """Return a copy without some columns, which keep their ids and their names in files."""
        dropped = tuple(column for column in self.columns if column.name in set(names))
        return replace(
            self,
            columns=tuple(column for column in self.columns if column not in dropped),
            dropped=(*self.dropped, *dropped),
        )

    def without_files(self) -> TableColumns:
        """Return a copy for a table without files: no column has another name in files, and none is kept for them."""
        columns = tuple(replace(column, file_names=()) for column in self.columns)
        return replace(self, columns=columns, dropped=())

    def renamed(self, column: Column, new: Column) -> Column:
        """Return a column with a new name, type or comment, but the same id and all its names in files.

        New files use the new name, unless it belongs to another column there.
        """
        names = column.stored_names
        if self.owners.get(new.name, column.id) == column.id:
            names = (*(name for name in names if name != new.name), new.name)
        return replace(new, id=column.id, part_ids=column.part_ids, file_names=() if names == (new.name,) else names)

    def following(self, columns: Iterable[Column], keys: Iterable[Column]) -> TableColumns:
        """Return the columns after the source of an imported table has redefined them.

        Matches columns by name, as Hive does; a column that reappears gets its former id.
        """
        known = {name: column for column in (*self.dropped, *self.columns) for name in column.stored_names}
        known |= {column.name: column for column in self.columns}
        used: set[int] = set()

        def identified(column: Column) -> Column:
            same = known.get(column.name)
            if same is None or same.id in used:
                return replace(column, id=0, file_names=())
            used.add(same.id)
            return self.renamed(same, column)

        after = tuple(map(identified, columns))
        left = tuple(column for column in (*self.dropped, *self.columns) if column.id not in used)
        named = [self.renamed(old, new) for old, new in zip(self.keys, keys, strict=True)]
        return replace(self, columns=after, keys=tuple(named), dropped=left).numbered()


def _with_part_ids(columns: Sequence[Column], last_id: int) -> tuple[list[Column], int]:
    """Return columns that have an id with ids of all fields inside them, and the highest id."""
    numbered: list[Column] = []
    for column in columns:
        if column.id and NESTED_TYPE.match(column.type):
            # Imported late: importing PyIceberg takes longer than answering a statement.
            from catalog.iceberg.types import part_names

            known = dict(column.part_ids)
            added = [name for name in part_names(column.type) if name not in known]
            known |= {name: last_id + number for number, name in enumerate(added, 1)}
            last_id += len(added)
            column = replace(column, part_ids=tuple(known.items()))
        numbered.append(column)
    return numbered, last_id


def with_columns(table: Table, columns: TableColumns) -> Table:
    """Return a table with other columns."""
    return replace(
        table,
        columns=columns.columns,
        partition_keys=columns.keys,
        dropped_columns=columns.dropped,
        last_column_id=columns.last_id,
    )


def _free_name(name: str, owners: Mapping[str, int]) -> str:
    while name in owners:
        name += "_"
    return name


def scheme_column_last(columns: Sequence[Column], column: str | None) -> tuple[Column, ...]:
    """Return the columns in their order, but with a scheme's partition column, if any, at the end."""
    return tuple(sorted(columns, key=lambda candidate: candidate.name == column))


def refuse_other_names(table: Table, before: TableColumns, after: TableColumns) -> None:
    """Refuse a change after which a column of a Hive-style table has another name in its files.

    Only Calve knows the names in files. Other engines find columns by the name in the catalog, so they would read null,
    or the values of another column, and Calve would not find those that they write. By position, they find the columns
    of CSV files, which the front doors do not show once positions differ (`catalog.doors.entries.csv_tables`).

    Raises:
        UnsupportedChangeError: A column gets another name, or the name of another column in files.
    """
    if table.has_file_rows or table.format not in _FOUND_BY_NAME:
        return
    known = {column.id: column for column in before.columns}
    for column in after.columns:
        old = known.get(column.id)
        if not column.file_names or (old is not None and old.file_names == column.file_names):
            continue
        change = "be added again" if old is None else f"become {column.name}"
        reason = "a former column has that name in its files" if old is None else "its files have the column's old name"
        raise UnsupportedChangeError(
            f"table {table.full_name}: column {(old or column).name} cannot {change}, because {reason}, by which other "
            "engines read it; migrate the table to Iceberg, which finds columns by ids, with CALL "
            f"iceberg.system.migrate(schema_name => '{table.database}', table_name => '{table.name}'), or add a column "
            "of another name"
        )


def file_layout(table: Table, file_format: FileFormat) -> tuple[Column, ...]:
    """Return the columns that a table's files may contain, by their names in files and in the order of their ids.

    Dropped columns keep their positions, because CSV files, and ORC files of Hive before 2.0, identify columns by
    position. Where columns are identified by name, former names follow. A file has a column under one of its names;
    the others read as null.
    """
    every = sorted((*table.columns, *table.dropped_columns), key=lambda column: column.id)
    by_position = [replace(column, name=column.stored_names[-1]) for column in every]
    if file_format is FileFormat.CSV:
        return tuple(by_position)
    former = [replace(column, name=name) for column in table.columns for name in column.stored_names[:-1]]
    return (*by_position, *former)


def is_plain_layout(table: Table) -> bool:
    """Return whether files have exactly the table's columns, with the same names and in the same order."""
    ids = [column.id for column in table.columns]
    return not table.dropped_columns and ids == sorted(ids) and not any(column.file_names for column in table.columns)


def column_json(column: Column) -> dict[str, Any]:
    """Return a column as JSON values, without empty fields."""
    fields: dict[str, Any] = {"name": column.name, "type": column.type, "id": column.id}
    if column.comment is not None:
        fields["comment"] = column.comment
    if column.file_names:
        fields["file_names"] = list(column.file_names)
    if column.part_ids:
        fields["part_ids"] = dict(column.part_ids)
    return fields


def column_from_json(stored: Mapping[str, Any]) -> Column:
    """Return the column that `column_json` has stored."""
    names, parts = tuple(stored.get("file_names", ())), tuple(stored.get("part_ids", {}).items())
    return Column(**{**stored, "file_names": names, "part_ids": parts})


# --- types ------------------------------------------------------------------------------------------------------------

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_SIZED = re.compile(r"(decimal|dec|numeric|varchar|char)\((\d+)(?:,(\d+))?\)")
_NESTED = re.compile(r"(array|map|struct)<(.*)>", re.DOTALL)


def check_type_change(table: str, column: str, before: str, after: str, *, is_empty: bool = False) -> None:
    """Check that values of one type can be read as another type without loss.

    Args:
        is_empty: The table has no rows yet, so a varchar may become shorter.

    Raises:
        UnsupportedChangeError: The change could lose values.

    Source: Iceberg's specification, "Schema Evolution": int → long, float → double, a decimal of more digits. In
        addition: the narrower integers, longer varchars, and new fields at the end of a struct.
    """
    is_text = {_sized(_compact(text))[0] for text in (before, after)} == {"varchar"}
    if not (_is_lossless(_compact(before), _compact(after)) or (is_empty and is_text)):
        raise UnsupportedChangeError(
            f"table {table}: column {column} cannot change from {before} to {after}, because files store its values as "
            f"{before}. A type can only be widened (tinyint, smallint, int, bigint; float, double; a decimal of more "
            "digits and the same scale; a longer varchar). Add a column of the new type instead"
        )


def _compact(text: str) -> str:
    return re.sub(r"\s+", "", text.lower())


def _is_lossless(before: str, after: str) -> bool:
    before, after = (ALIASES.get(text, text) for text in (before, after))
    if before == after:
        return True
    if before in _INTEGERS and after in _INTEGERS:
        return _INTEGERS.index(before) < _INTEGERS.index(after)
    if (before, after) == ("float", "double"):
        return True
    nested = [_NESTED.fullmatch(text) for text in (before, after)]
    if nested[0] is not None and nested[1] is not None:
        return nested[0][1] == nested[1][1] and _are_lossless(nested[0][1], nested[0][2], nested[1][2])
    return _is_wider(_sized(before), _sized(after))


def _sized(text: str) -> tuple[str, int, int]:
    """Return a type's kind, its length or precision, and its scale."""
    if text in ("decimal", "dec", "numeric"):
        return "decimal", 10, 0
    match = _SIZED.fullmatch(text)
    if match is None:
        return ("varchar", 65_536, 0) if text == "string" else (text, 0, 0)
    kind = "decimal" if match[1] in ("dec", "numeric") else match[1]
    return kind, int(match[2]), int(match[3] or 0)


def _is_wider(before: tuple[str, int, int], after: tuple[str, int, int]) -> bool:
    if before[0] == "char" or before[0] != after[0] or before[2] != after[2]:
        return before == after
    return before[1] <= after[1]


def _are_lossless(kind: str, before: str, after: str) -> bool:
    """Return whether the parts of a nested type change without loss; a struct may get new fields at its end."""
    old, new = _parts(before), _parts(after)
    if kind != "struct":
        return len(old) == len(new) and all(map(_is_lossless, old, new))
    old_fields, new_fields = ([part.partition(":") for part in parts] for parts in (old, new))
    return len(old) <= len(new) and all(
        old_field[0] == new_field[0] and _is_lossless(old_field[2], new_field[2])
        for old_field, new_field in zip(old_fields, new_fields, strict=False)
    )


def parts_of_type(text: str) -> tuple[str, list[str]]:
    """Return the kind of a nested type, and the parts between its brackets; of another type, itself and no parts."""
    match = _NESTED.fullmatch(text.strip())
    return (text.strip(), []) if match is None else (match[1], _parts(match[2]))


def _parts(text: str) -> list[str]:
    """Split a string at commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def refuse_used_columns(table: Table, names: Iterable[str]) -> None:
    """Refuse to drop columns that a table needs.

    Raises:
        InvalidTableError: A name is not a column, or is a partition key.
        UnsupportedChangeError: The table places, sorts or buckets rows by a column.
    """
    known = {column.name for column in table.columns}
    scheme = table.scheme
    placing = set() if scheme is None else {scheme.column, *scheme.sort_columns}
    placing.update(() if table.buckets is None else table.buckets.columns)
    for name in names:
        if name not in known:
            raise InvalidTableError(
                f"table {table.full_name} has no column {name} to drop; its columns are {', '.join(sorted(known))}"
            )
        if name in placing:
            raise UnsupportedChangeError(
                f"column {name} of table {table.full_name} cannot be dropped, because rows are placed, sorted or "
                "bucketed by it; create a new table without it"
            )
