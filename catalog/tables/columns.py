"""The identity of columns: their ids, and the names that data files have them under.

A column keeps its id for as long as it exists, whatever it is called; no other column of the table ever gets it. Each
name that data files use belongs to one column for good, too, also after that column was renamed or dropped. Reading a
file by these names therefore is reading it by ids, in every format and whenever the file was written. A column whose
own name belongs to another one (`note`, after the first `note` became `remark`) is `note__7` in files.

Source: the column mapping of Delta Lake, whose physical names stay; Iceberg's specification, "Schema Evolution".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from catalog.errors import InvalidTableError, UnsupportedChangeError
from catalog.model import Column, FileFormat, Table


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table, with ids.

    Attributes:
        columns, keys: As `Table` has them.
        dropped: Columns that the table had, which only the names in files are kept for.
        last_id: The highest id that a column of the table has ever had.
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
        """The id of the column that each name in files belongs to."""
        every = (*self.dropped, *self.columns, *self.keys)
        return {name: column.id for column in every if column.id for name in column.stored_names}

    def numbered(self) -> TableColumns:
        """Return these with ids for those that have none, and names in files that belong to no other column."""
        owners, last_id = self.owners, self.last_id
        identified: list[Column] = []
        for column in (*self.columns, *self.keys):
            if column.id == 0:
                last_id += 1
                is_taken = owners.get(column.name, 0) != 0
                names = (_free_name(f"{column.name}__{last_id}", owners),) if is_taken else ()
                column = replace(column, id=last_id, file_names=names)
                owners.update(dict.fromkeys(column.stored_names, last_id))
            identified.append(column)
        count = len(self.columns)
        return replace(self, columns=tuple(identified[:count]), keys=tuple(identified[count:]), last_id=last_id)

    def dropping(self, names: Iterable[str]) -> TableColumns:
        """Return these without some columns, whose ids and names in files stay theirs."""
        gone = tuple(column for column in self.columns if column.name in set(names))
        return replace(
            self,
            columns=tuple(column for column in self.columns if column not in gone),
            dropped=(*self.dropped, *gone),
        )

    def renamed(self, column: Column, new: Column) -> Column:
        """Return a column with another name, type or comment, and with its id and all its names in files.

        The new name becomes the one in new files, unless it belongs to another column there.
        """
        names = column.stored_names
        if self.owners.get(new.name, column.id) == column.id:
            names = (*(name for name in names if name != new.name), new.name)
        return replace(new, id=column.id, file_names=() if names == (new.name,) else names)

    def following(self, columns: Iterable[Column], keys: Iterable[Column]) -> TableColumns:
        """Return what becomes of these when the source of an imported table says what its columns are.

        Columns are the same by name, as Hive reads them; one that comes back is the one that it was.
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


def _free_name(name: str, owners: Mapping[str, int]) -> str:
    while name in owners:
        name += "_"
    return name


def scheme_column_last(columns: Sequence[Column], column: str | None) -> tuple[Column, ...]:
    """Return columns in their order, with the partition column of a scheme, if there is one, behind the others."""
    return tuple(sorted(columns, key=lambda each: each.name == column))


def file_layout(table: Table, file_format: FileFormat) -> tuple[Column, ...]:
    """Return the columns that files of a table may have, under the names there, in the order of their ids.

    Dropped columns keep their places: CSV, and ORC files of Hive before 2.0, tell columns by position. Former names
    follow, where columns are told by name. A file has a column under one of its names; the others read as null.
    """
    every = sorted((*table.columns, *table.dropped_columns), key=lambda column: column.id)
    by_position = [replace(column, name=column.stored_names[-1]) for column in every]
    if file_format is FileFormat.CSV:
        return tuple(by_position)
    former = [replace(column, name=name) for column in table.columns for name in column.stored_names[:-1]]
    return (*by_position, *former)


def is_plain_layout(table: Table) -> bool:
    """Return whether files have just the table's columns, under their names and in their order."""
    ids = [column.id for column in table.columns]
    return not table.dropped_columns and ids == sorted(ids) and not any(each.file_names for each in table.columns)


def column_json(column: Column) -> dict[str, Any]:
    """Return a column as plain values, without those that say nothing."""
    fields: dict[str, Any] = {"name": column.name, "type": column.type, "id": column.id}
    if column.comment is not None:
        fields["comment"] = column.comment
    if column.file_names:
        fields["file_names"] = list(column.file_names)
    return fields


def column_from_json(stored: Mapping[str, Any]) -> Column:
    """Return the column of `column_json`."""
    return Column(**{**stored, "file_names": tuple(stored.get("file_names", ()))})


# --- types ------------------------------------------------------------------------------------------------------------

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float"}
_SIZED = re.compile(r"(decimal|dec|numeric|varchar|char)\((\d+)(?:,(\d+))?\)")
_NESTED = re.compile(r"(array|map|struct)<(.*)>", re.DOTALL)


def check_type_change(table: str, column: str, before: str, after: str, *, is_empty: bool = False) -> None:
    """Make sure that files with a column of one type can be read as another one, without loss.

    Args:
        is_empty: The table has no row yet: a text may become a shorter one.

    Raises:
        UnsupportedChangeError: They cannot.

    Source: Iceberg's specification, "Schema Evolution": int → long, float → double, a decimal of more digits; and
        narrower integers, longer varchars, and further fields at the end of a struct.
    """
    is_text = {_sized(_compact(text))[0] for text in (before, after)} == {"varchar"}
    if not (_is_lossless(_compact(before), _compact(after)) or (is_empty and is_text)):
        raise UnsupportedChangeError(
            f"table {table}: column {column} cannot change from {before} to {after}, because files hold its values as "
            f"{before}; a type becomes a wider one of its kind (tinyint, smallint, int, bigint; float, double; a "
            "decimal of more digits and the same scale; a longer varchar). Add a column of the new type instead"
        )


def _compact(text: str) -> str:
    return re.sub(r"\s+", "", text.lower())


def _is_lossless(before: str, after: str) -> bool:
    before, after = (_ALIASES.get(text, text) for text in (before, after))
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
    found = _SIZED.fullmatch(text)
    if found is None:
        return ("varchar", 65_536, 0) if text == "string" else (text, 0, 0)
    kind = "decimal" if found[1] in ("dec", "numeric") else found[1]
    return kind, int(found[2]), int(found[3] or 0)


def _is_wider(before: tuple[str, int, int], after: tuple[str, int, int]) -> bool:
    if before[0] == "char" or before[0] != after[0] or before[2] != after[2]:
        return before == after
    return before[1] <= after[1]


def _are_lossless(kind: str, before: str, after: str) -> bool:
    """Return whether the parts of a nested type change without loss; a struct may get further fields at its end."""
    old, new = _parts(before), _parts(after)
    if kind != "struct":
        return len(old) == len(new) and all(map(_is_lossless, old, new))
    old_fields, new_fields = ([part.partition(":") for part in parts] for parts in (old, new))
    return len(old) <= len(new) and all(
        one[0] == other[0] and _is_lossless(one[2], other[2])
        for one, other in zip(old_fields, new_fields, strict=False)
    )


def _parts(text: str) -> list[str]:
    """Return what commas separate in a text, but not those inside brackets."""
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
        InvalidTableError: There is no such column, or it is a partition key.
        UnsupportedChangeError: Rows are placed, sorted or bucketed by it.
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
                f"table {table.full_name}: its rows are placed, sorted or bucketed by column {name}, which therefore "
                "stays; make a new table without it"
            )
