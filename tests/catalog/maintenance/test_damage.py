"""Each damage of files and rows is found, by name, in tables of each kind; sound tables have no finding."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.io import InputStream
from pyiceberg.io.pyarrow import PyArrowFile
from sqlalchemy import select, update

from catalog import Catalog
from catalog.maintenance.findings import Depth
from catalog.maintenance.findings import FindingKind as Kind
from catalog.model import Column
from catalog.storage.schema import DataFileRow, PartitionIndexRow, PartitionRow
from catalog.tables.schemes import scheme_from_properties
from tests.support import damage
from tests.support.effort import sampled
from tests.support.tables_to_damage import KINDS, Planted, load

OWN, ENGINES = ("stored", "scheme"), ("migrated", "rest", "sql")
ICEBERG = (*OWN, *ENGINES)

FILES: dict[Callable[[Planted], None], dict[str, Kind]] = {
    damage.data_missing: {"hive": Kind.STALE_COUNTS, **dict.fromkeys(ICEBERG, Kind.MISSING_FILES)},
    damage.data_truncated: {"hive": Kind.STALE_COUNTS, **dict.fromkeys(ICEBERG, Kind.CHANGED_FILES)},
    damage.data_grown: {"hive": Kind.STALE_COUNTS, **dict.fromkeys(ICEBERG, Kind.CHANGED_FILES)},
    damage.data_extra: {"hive": Kind.STALE_COUNTS, **dict.fromkeys(ICEBERG, Kind.UNKNOWN_FILES)},
    **dict.fromkeys(
        (
            damage.manifest_missing,
            damage.manifest_truncated,
            damage.manifest_list_missing,
            damage.manifest_list_unreadable,
            damage.metadata_missing,
            damage.metadata_unreadable,
        ),
        dict.fromkeys(ICEBERG, Kind.UNREADABLE_METADATA),
    ),
    damage.manifest_list_with_other_counts: dict.fromkeys(ICEBERG, Kind.WRONG_SUMMARIES),
    damage.manifest_list_with_other_bounds: dict.fromkeys(("stored", "migrated"), Kind.WRONG_SUMMARIES),
    damage.manifest_list_with_a_cut_bound: {"stored": Kind.WRONG_SUMMARIES},
    damage.pointer_missing: {"migrated": Kind.UNREADABLE_METADATA},
}
ROWS: dict[Callable[[Planted], None], dict[str, Kind]] = {
    damage.file_row_missing: dict.fromkeys(OWN, Kind.MISSING_FILE_ROWS),
    damage.file_row_doubled: dict.fromkeys(OWN, Kind.DOUBLED_FILE_ROWS),
    damage.file_row_extra: dict.fromkeys(OWN, Kind.EXTRA_FILE_ROWS),
    damage.file_row_count: dict.fromkeys(OWN, Kind.WRONG_FILE_ROWS),
    damage.file_row_size: dict.fromkeys(OWN, Kind.WRONG_FILE_ROWS),
    damage.file_row_bounds: {"scheme": Kind.WRONG_FILE_ROWS},
    damage.file_row_of_no_partition: dict.fromkeys(OWN, Kind.MISSING_PARTITIONS),
    damage.file_row_of_other_partition: {"stored": Kind.WRONG_FILE_ROWS},
    damage.partition_row_missing: {"hive": Kind.FOLDER_WITHOUT_PARTITION, "stored": Kind.MISSING_PARTITIONS},
    damage.partition_row_extra: {"hive": Kind.PARTITION_WITHOUT_FOLDER, "stored": Kind.STALE_COUNTS},
    damage.partition_row_under_other_key: dict.fromkeys(("hive", "stored"), Kind.MISKEYED_PARTITIONS),
    damage.counts_wrong: dict.fromkeys(("hive", "stored"), Kind.STALE_COUNTS),
    damage.index_item_missing: dict.fromkeys(("hive", "stored"), Kind.INDEX_DIFFERS),
    damage.index_item_extra: dict.fromkeys(("hive", "stored"), Kind.INDEX_DIFFERS),
    damage.index_item_under_other_key: dict.fromkeys(("hive", "stored"), Kind.INDEX_DIFFERS),
    damage.statistics_of_no_partition: dict.fromkeys(("hive", "stored"), Kind.WRONG_STATISTICS),
    damage.statistics_wrong: dict.fromkeys(("hive", "stored"), Kind.WRONG_STATISTICS),
    damage.operation_stuck: dict.fromkeys(("hive", "stored", "scheme"), Kind.ABANDONED_OPERATION),
    damage.location_of_other_table: dict.fromkeys(("hive", "stored", "scheme"), Kind.SHARED_LOCATION),
    damage.location_of_other_partition: {"hive": Kind.SHARED_LOCATION},
}
CONTENTS: dict[Callable[[Planted], None], tuple[Depth, dict[str, Kind]]] = {
    damage.data_replaced: (
        Depth.FOOTERS,
        {"hive": Kind.STALE_COUNTS, **dict.fromkeys(ICEBERG, Kind.CHANGED_FILES)},
    ),
    damage.data_with_other_values: (Depth.FOOTERS, dict.fromkeys(ICEBERG, Kind.CHANGED_FILES)),
    damage.row_counts_wrong: (Depth.FOOTERS, {"hive": Kind.STALE_COUNTS}),
    damage.data_corrupted: (Depth.ROWS, dict.fromkeys(("hive", *ICEBERG), Kind.CHANGED_FILES)),
}
HINTS = (Kind.UNKNOWN_FILES, Kind.FOLDER_WITHOUT_PARTITION)


Plant = Callable[[Planted], None]


def cases(planted: dict[Plant, dict[str, Kind]]) -> list[tuple[str, Plant, Kind]]:
    return [(kind, plant, expected) for plant, by_kind in planted.items() for kind, expected in by_kind.items()]


def sample(cases: list[Any]) -> list[Any]:
    """Return cases, of which `make test` runs those of some kinds of tables."""
    return sampled(cases, [case for case in cases if case[0] in ("hive", "stored", "rest")])


def check_damage(catalog: Catalog, kind: str, plant: Callable[[Planted], None], expected: Kind, depth: Depth) -> None:
    """Plant a damage, and check that it is found; and that nothing was found before."""
    table = KINDS[kind](catalog)
    sound = catalog.maintenance.check(depth=depth)
    assert sound.findings == ()
    plant(table)
    report = catalog.maintenance.check(depth=depth)
    findings = {finding.kind: finding for finding in report.findings}
    assert expected in findings, report
    assert findings[expected].where
    assert findings[expected].remedy
    assert findings[expected].table in (table.name, "demo.other", None)
    # Other findings may follow from a damage, for instance index items of a partition that is missing.
    assert report.has_damage or expected in HINTS, report


@pytest.mark.parametrize(("kind", "plant", "expected"), sample(cases(FILES)))
def test_damaged_files_are_found(catalog: Catalog, kind: str, plant: Callable[[Planted], None], expected: Kind) -> None:
    check_damage(catalog, kind, plant, expected, Depth.SIZES)


@pytest.mark.parametrize(("kind", "plant", "expected"), sample(cases(ROWS)))
def test_damaged_rows_are_found(catalog: Catalog, kind: str, plant: Callable[[Planted], None], expected: Kind) -> None:
    check_damage(catalog, kind, plant, expected, Depth.SIZES)


@pytest.mark.parametrize(
    ("kind", "plant", "depth", "expected"),
    sample(
        [
            (kind, plant, depth, expected)
            for plant, (depth, by_kind) in CONTENTS.items()
            for kind, expected in by_kind.items()
        ]
    ),
)
def test_damaged_contents_are_found(
    catalog: Catalog, kind: str, plant: Callable[[Planted], None], depth: Depth, expected: Kind
) -> None:
    check_damage(catalog, kind, plant, expected, depth)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (damage.deletes_missing, Kind.MISSING_FILES),
        pytest.param(damage.deletes_truncated, Kind.CHANGED_FILES, marks=pytest.mark.long),
        (damage.data_doubled, Kind.DOUBLED_FILES),
    ],
)
def test_damaged_files_of_engines_are_found(catalog: Catalog, plant: Callable[[Planted], None], expected: Kind) -> None:
    pytest.importorskip("duckdb_extension_httpfs", reason="the wheel duckdb-extension-httpfs is not installed")
    check_damage(catalog, "deletes", plant, expected, Depth.SIZES)


def test_an_index_that_could_not_be_built_is_found(catalog: Catalog) -> None:
    table = KINDS["hive"](catalog)
    row = PartitionIndexRow
    table.change(update(row).where(row.table_id == table.id).values(state="FAILED", failure_code="INVALID_VALUES"))
    [finding] = catalog.maintenance.check().findings
    assert (finding.kind, finding.where) == (Kind.INDEX_FAILED, ("by_k",))
    assert "INVALID_VALUES" in finding.remedy


@pytest.mark.parametrize("suffix", [".metadata.json", ".avro"])
def test_a_storage_that_does_not_answer_is_not_called_damaged(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    KINDS["rest"](catalog)
    opened = PyArrowFile.open

    def broken(file: PyArrowFile, *arguments: Any, **named: Any) -> InputStream:
        if file.location.endswith(suffix):
            raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 7, Couldn't connect")
        return opened(file, *arguments, **named)

    monkeypatch.setattr(PyArrowFile, "open", broken)
    [finding] = catalog.maintenance.check().findings
    assert finding.kind == Kind.NOT_CHECKED
    assert "cannot be reached" in finding.where[0]


NOT_RENEWED = (
    damage.operation_stuck,
    damage.statistics_of_no_partition,
    damage.statistics_wrong,
    damage.location_of_other_table,
    damage.location_of_other_partition,
)


@pytest.mark.parametrize(
    ("kind", "plant"),
    sample([(kind, plant) for kind, plant, _ in cases(ROWS) if kind in OWN and plant not in NOT_RENEWED]),
)
def test_damaged_rows_are_renewed_from_the_snapshot(catalog: Catalog, kind: str, plant: Plant) -> None:
    table = KINDS[kind](catalog)
    numbers = written_by(catalog)
    plant(table)
    assert catalog.maintenance.check(depth=Depth.FOOTERS).has_damage
    catalog.maintenance.renew(table.name)
    assert catalog.maintenance.check(depth=Depth.FOOTERS).findings == ()
    assert written_by(catalog) == numbers
    catalog.vacuum(grace=timedelta(0))
    assert catalog.maintenance.check(depth=Depth.ROWS).findings == ()


def written_by(catalog: Catalog) -> list[tuple[str, int | None]]:
    """Return the files with the operations that have written them, which vacuum asks for."""
    row = DataFileRow
    with catalog.storage.read() as connection:
        return [tuple(found) for found in connection.execute(select(row.path, row.operation_number).order_by(row.path))]


def test_partitions_under_other_keys_are_renewed(catalog: Catalog) -> None:
    table = KINDS["hive"](catalog)
    table.change(update(PartitionRow).where(table.first(PartitionRow)).values(identity=b"0123456789abcdef"))
    damage.index_item_missing(table)
    kinds = {finding.kind for finding in catalog.maintenance.check().findings}
    assert {Kind.MISKEYED_PARTITIONS, Kind.INDEX_DIFFERS} <= kinds
    catalog.maintenance.renew(table.name)
    assert catalog.maintenance.check().findings == ()


SCHEMES = {
    "range": {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"},
    "list": {"PARTITION_TYPE": "LIST", "LIST_INFO": "5, 15"},
    "hash": {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"},
}


@pytest.mark.parametrize("kind", SCHEMES)
def test_a_file_row_in_a_partition_that_its_values_are_not_of_is_renewed(catalog: Catalog, kind: str) -> None:
    scheme = scheme_from_properties(Column("k", "int"), SCHEMES[kind])
    table = catalog.create_table("demo.placed", columns=[("v", "int"), ("k", "int")], scheme=scheme)
    for number, value in enumerate((5, 15, 25)):
        load(catalog, table, f"load-{number}", {scheme.partition_of(value): [value]})
    before = [len(catalog.scan_files("demo.placed", f"k = {value}").files) for value in (5, 15, 25)]
    assert catalog.maintenance.check("demo.placed").findings == ()
    other = next(number for number in scheme.ids if number != scheme.partition_of(25))
    with catalog.storage.write() as connection:
        first = select(DataFileRow.id).where(DataFileRow.partition_id == scheme.partition_of(25)).limit(1)
        connection.execute(update(DataFileRow).where(DataFileRow.id.in_(first)).values(partition_id=other))
    (finding,) = catalog.maintenance.check("demo.placed").findings
    assert (finding.kind, finding.count) == (Kind.WRONG_FILE_ROWS, 1)
    assert finding.where[0].endswith(" in another partition")
    catalog.maintenance.renew("demo.placed")
    assert catalog.maintenance.check("demo.placed").findings == ()
    assert [len(catalog.scan_files("demo.placed", f"k = {value}").files) for value in (5, 15, 25)] == before
