"""Hive tables for benchmarks of migrations: many small files with 50 columns, a hundred in each partition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow
import pyarrow.orc
import pyarrow.parquet

from catalog import FileFormat, Table
from catalog.model import Column

DATABASE = "bench"
COLUMN_COUNT = 50
FILES_A_PARTITION = 100

_TYPES = {
    "bigint": pyarrow.int64(),
    "double": pyarrow.float64(),
    "string": pyarrow.string(),
    "int": pyarrow.int32(),
    "date": pyarrow.date32(),
}
_ROWS = 20
_VARIANTS = 16


def table_of(folder: Path, file_format: FileFormat, file_count: int, column_count: int = COLUMN_COUNT) -> Table:
    """Return the definition of a table with a number of files, which need not exist."""
    name = f"{file_format}_{file_count}_{column_count}"
    kinds = list(_TYPES)
    columns = tuple(Column(f"c{number}", kinds[number % len(kinds)]) for number in range(column_count))
    return Table(DATABASE, name, columns, (Column("day", "int"),), file_format, str(folder / name))


def write_files(table: Table, file_count: int) -> None:
    """Write a table's files: some distinct ones, and copies of them."""
    root = Path(table.location)
    root.mkdir(parents=True)
    written = [_write_one(root / f".variant-{number}", table, number) for number in range(_VARIANTS)]
    for number in range(file_count):
        folder = root / f"day={number // FILES_A_PARTITION}"
        folder.mkdir(exist_ok=True)
        shutil.copyfile(written[number % _VARIANTS], folder / f"{number:08d}.{table.format}")
    for path in written:
        path.unlink()


def _write_one(path: Path, table: Table, number: int) -> Path:
    rows = pyarrow.table({column.name: _values(column.type, number) for column in table.columns})
    if table.format is FileFormat.ORC:
        pyarrow.orc.write_table(rows, path)
    else:
        pyarrow.parquet.write_table(rows, path)
    return path


def _values(kind: str, number: int) -> pyarrow.Array:
    values = [None if row == number else row * (number + 1) for row in range(_ROWS)]
    if kind == "string":
        return pyarrow.array([f"a text of some length, {value}" for value in values])
    whole = pyarrow.array(values, pyarrow.int32())
    return whole.cast(_TYPES[kind])
