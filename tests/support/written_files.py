"""Loads into a table with a partition scheme, step by step, without Spark; and the files on disk after them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import select

from catalog import Catalog, Table
from catalog.datafiles.committing import FileChange
from catalog.datafiles.files import DataFile, NewFile
from catalog.datafiles.manifest import write_manifest
from catalog.iceberg.places import METADATA
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.schemes.hashing import HashScheme
from catalog.storage.schema import FormerFileRow
from catalog.tables.own_files import base_name

STEP = "load"

SPARK_NAME = "part-00000-6e0bf6c1-7b55-4cc7-a484-d82c04bce9ba.c000.snappy.parquet"
"""The name of a file that another Spark wrote."""


def own_name(catalog: Catalog) -> str:
    """Return the name of a data file that the catalog wrote."""
    return SPARK_NAME.replace("part", base_name(catalog.storage.identity))


def hashed_table(catalog: Catalog, name: str = "demo.h", *, location: str | None = None) -> Table:
    scheme = HashScheme("k", "int", (), 3)
    return catalog.create_table(name, columns=[("v", "int"), ("k", "int")], scheme=scheme, location=location)


class Load:
    """One load, whose files contain only their names."""

    def __init__(self, catalog: Catalog, table: Table, name: str) -> None:
        self.catalog, self.table, self.name = catalog, table, name
        self.attempt = 0

    @property
    def folder(self) -> str:
        return attempt_folder(self.catalog.operations.get(self.name), self.attempt)

    def begin(self) -> Load:
        self.catalog.operations.begin(self.name, OperationKind.LOAD_ROWS, self.table.full_name, is_exclusive=True)
        return self.start()

    def start(self) -> Load:
        """Begin an attempt."""
        self.attempt = self.catalog.operations.start_job(self.name, STEP)
        return self

    def write(self, count: int = 2, *, strays: Sequence[str] = ("_SUCCESS",)) -> Load:
        """Write files, their list, and files that are not in the list."""
        files = [
            NewFile(number % 3, f"{self.folder}/calve_partition_id={number % 3}/{number}.parquet", 10, 100, {})
            for number in range(count)
        ]
        for path in [*(file.path for file in files), *(f"{self.folder}/{stray}" for stray in strays)]:
            write_file(Path(self.table.location.removeprefix("file://")) / path)
        write_manifest(self.table, self.folder, files)
        return self

    def commit(self, retired: Iterable[DataFile] = ()) -> Load:
        scheme = self.table.scheme
        assert scheme is not None
        change = FileChange(scheme, scheme, self.folder, retired=[each.id for each in retired])
        self.catalog.committer.commit(self.name, STEP, self.attempt, change, {})
        return self

    def fail(self) -> Load:
        self.catalog.operations.fail(self.name, "TEST", "cancelled by the test")
        return self

    def run(self, retired: Iterable[DataFile] = ()) -> Load:
        return self.begin().write().commit(retired)


def write_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    return path


def data_files(catalog: Catalog, table: Table) -> tuple[DataFile, ...]:
    return catalog.scan_files(table.full_name).files


def on_disk(location: str) -> set[str]:
    """Return the files in a folder, relative to it, without Iceberg's metadata."""
    root = Path(location)
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.parts[0] != METADATA}


def known(catalog: Catalog, table: Table) -> set[str]:
    return {file.path for file in data_files(catalog, table)}


def retired(catalog: Catalog) -> set[str]:
    with catalog.storage.read() as connection:
        return set(connection.scalars(select(FormerFileRow.path)))
