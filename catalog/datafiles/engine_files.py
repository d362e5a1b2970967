"""Data files that other engines have added to a table: whether Calve can read them, and how.

Files of Calve are read by the names of their columns, which belong to one column of the table for good. Files of other
engines are read in the same way if all their columns have these names. Otherwise they are read by the field ids in
them, for instance files whose writer has changed the names. A file without field ids, which an engine has added as it
was (`add_files`), has only its names: Iceberg's readers find its columns by the table's name mapping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from pyiceberg.types import IcebergType, StructType

from catalog.datafiles.bounds import integer_outside
from catalog.errors import MissingFileError, UnusableFileError
from catalog.files.credentials import without_credentials
from catalog.files.failures import storage_errors
from catalog.files.filesystem import FileInfo, in_parallel
from catalog.files.locations import OwnFiles, comparable, is_literally_within, is_local
from catalog.iceberg.differences import Difference, LiveFile
from catalog.iceberg.documents.tables import NAME_MAPPING
from catalog.iceberg.footers.columns import FileColumn, has_ids
from catalog.iceberg.footers.parquet import file_columns
from catalog.iceberg.footers.parquet_footers import FileSchema, FooterParser, reading_footer
from catalog.iceberg.layout import mapped_ids
from catalog.iceberg.types import fields_inside
from catalog.model import Column, Table
from catalog.tables.columns import TableColumns
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import IntegerType

_NARROW = re.compile(r"\b(?:tinyint|smallint)\b(?!:)")
"""The name of a small type, and not of a field."""


class FilesError(Exception):
    """Calve cannot read a file; the message says which, and why."""


def usable_files(table: Table, commits: Difference) -> list[LiveFile]:
    """Return the added files, with how they are read, according to their footers.

    Args:
        table: With its columns as other engines have changed them.

    Raises:
        FilesError: Calve cannot read a file.
        StorageError: The file system refused.
    """
    if not commits.added:
        return []
    own = OwnFiles([table.location])
    for file in commits.added:
        _check_entry(table, file, own)
    footers, names = FooterParser(), _Names.of(table, commits)

    @cache
    def judged(schema: FileSchema) -> tuple[str | None, bool]:
        columns = file_columns(schema.columns)
        return names.problem_of(columns), names.are_found_by_id(columns)

    def usable(file: LiveFile) -> LiveFile:
        try:
            with storage_errors(file.path):
                schema = footers.read_schema(FileInfo(file.path, file.size_bytes, 0))
            with reading_footer(file.path):
                problem, is_read_by_id = judged(schema)
        except MissingFileError as error:
            raise FilesError(f"the data file {without_credentials(file.path)} does not exist") from error
        except UnusableFileError as error:
            raise FilesError(f"the data {error}") from error
        if problem is not None:
            raise FilesError(f"the data file {file.path} {problem}")
        return replace(file, is_read_by_id=is_read_by_id) if is_read_by_id else file

    # A local footer is read faster than it is given to another thread.
    return list(map(usable, commits.added) if is_local(table.location) else in_parallel(usable, commits.added))


def _check_entry(table: Table, file: LiveFile, own: OwnFiles) -> None:
    """Check what the manifest says about a file.

    Raises:
        FilesError: Calve cannot read the file.
    """
    shown = without_credentials(file.path)
    if "\0" in file.path or file.size_bytes < 0:
        raise FilesError(
            f"the data file {shown!r} of {file.size_bytes} bytes has a path or a size that no file can have"
        )
    if file.format != "PARQUET":
        raise FilesError(f"the data file {shown} is in the format {file.format}, not Parquet")
    if not is_literally_within(file.path, table.location):
        if not file.path.startswith(table.location) and is_literally_within(
            comparable(file.path), comparable(table.location)
        ):
            raise FilesError(
                f"the path of the data file {file.path} does not start with {table.location}, as others do"
            )
        raise FilesError(f"the data file {shown} is outside the table's folder, {table.location}")
    if file.path not in own:
        raise FilesError(f"the data file {shown} is outside the table's folder, {table.location}: a link leads there")
    for column in table.in_files.columns:
        if (problem := _unfit_integers(file, column)) is not None:
            raise FilesError(f"the data file {shown} {problem}")


def _unfit_integers(file: LiveFile, column: Column) -> str | None:
    """Return why a file may have numbers that a column cannot hold; None if it has none.

    Iceberg has no smaller type than `int`, and Spark would read the numbers beyond a smaller one as others.
    """
    value_type = parse_column_type(column.type)
    if isinstance(value_type, IntegerType):
        outside = integer_outside(file, column.id, value_type)
        if outside is not None:
            return f"has {outside} in column {column.name}, which is a {column.type}"
    if not _NARROW.search(column.type) or file.row_count == 0:
        return None
    if value_type is None:
        return (
            f"may have numbers that do not fit into the {column.type} of column {column.name}: other engines write "
            "them as int, without bounds; have Calve write the rows, or use int in the type"
        )
    nulls, values = file.null_counts.get(column.id), file.value_counts.get(column.id)
    if column.id in file.lower_bounds or (nulls is not None and nulls == values):
        return None
    return (
        f"has no bounds for column {column.name}, so that numbers which do not fit into a {column.type} would be "
        f"unknown; write it with the table property write.metadata.metrics.column.{column.name} = full"
    )


@dataclass(frozen=True)
class _Names:
    """The names of a table's columns in files.

    Attributes:
        owners: Name → id of the column that has it in files of Calve.
        mapped: Name → id of the column that has it in files without field ids, for Iceberg's readers.
        keys: Id → name of the partition keys that all files must have, because Calve reads them from files.
        types: Id → Iceberg's type.
    """

    owners: Mapping[str, int]
    mapped: Mapping[str, int]
    keys: Mapping[int, str]
    types: Mapping[int, IcebergType]

    @classmethod
    def of(cls, table: Table, commits: Difference) -> _Names:
        text = commits.after.properties.get(NAME_MAPPING, "[]")
        try:
            mapped = {path[0]: field_id for path, field_id in mapped_ids(text).items() if len(path) == 1}
        except ValueError as error:
            raise FilesError(f"the property {NAME_MAPPING} is not a name mapping of Iceberg: {text[:80]}") from error
        keys = {key.id: key.name for key in table.partition_keys} if table.is_stored_as_iceberg else {}
        types = {field.field_id: field.field_type for field in commits.after.schema().fields}
        return cls(TableColumns.of(table).owners, mapped, keys, types)

    def problem_of(self, columns: Sequence[FileColumn]) -> str | None:
        """Return why Calve cannot read a file with these columns; None if it can."""
        if has_ids(columns):
            ids = [column.field_id for column in columns]
            if (other := self._other_inside(columns)) is not None:
                return (
                    f"has the field {other}, which is not in the table under this name and id, and Calve reads fields "
                    "inside of columns by their names"
                )
        else:
            other = next((column.name for column in columns if self._without_id(column) == 0), None)
            if other is not None:
                names = ", ".join(sorted(name for name, owner in self.owners.items() if self.mapped.get(name) == owner))
                return (
                    f"has no field ids, and its column {other} has none of the names that columns of the table have in "
                    f"files, which are {names}; write it by an engine instead of adding it, or with these names"
                )
            ids = [self._without_id(column) for column in columns]
        if (twice := next((field_id for field_id in ids if field_id and ids.count(field_id) > 1), None)) is not None:
            names = ", ".join(column.name for column, own in zip(columns, ids, strict=True) if own == twice)
            return f"has one column of the table more than once, as {names}; readers disagree which of them counts"
        lacking = next((name for key_id, name in self.keys.items() if key_id not in ids), None)
        return None if lacking is None else f"lacks the partition key {lacking}; write it with all partition keys"

    def _other_inside(self, columns: Iterable[FileColumn]) -> str | None:
        """Return the first field inside of a column that has another name or id than in the table."""
        inside = (_other_field(column, self.types.get(column.field_id or 0), column.name) for column in columns)
        return next((other for other in inside if other is not None), None)

    def are_found_by_id(self, columns: Iterable[FileColumn]) -> bool:
        """Return whether columns must be found by their ids, because their names are not those in files of Calve."""
        return has_ids(columns) and any(self.owners.get(column.name) != column.field_id for column in columns)

    def _without_id(self, column: FileColumn) -> int:
        """Return the id of the table's column that all readers find by a name; 0 if there is none."""
        owner = self.owners.get(column.name, 0)
        return owner if self.mapped.get(column.name) == owner else 0


def _other_field(column: FileColumn, expected: IcebergType | None, path: str) -> str | None:
    """Return the first part of a column or of its parts that a type does not have by this name and id, if any."""
    fields = {field.field_id: field for field in (() if expected is None else fields_inside(expected))}
    for part in column.parts if fields else ():
        name, field = f"{path}.{part.name}", fields.get(part.field_id or 0)
        # Elements, keys and values have no names of their own.
        if field is None or (isinstance(expected, StructType) and field.name.lower() != part.name.lower()):
            return name
        if (other := _other_field(part, field.field_type, name)) is not None:
            return other
    return None
