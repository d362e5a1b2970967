"""A check finds nothing in catalogs whose tables were made and changed at random, by Calve and by engines."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from catalog import Catalog, NewPartition
from catalog.datafiles.publishing import live_history
from catalog.errors import UnknownSnapshotError
from catalog.maintenance.findings import Depth, FindingKind
from tests.support.effort import effort
from tests.support.iceberg_tables import sql_catalog, write_rows
from tests.support.partition_files import append
from tests.support.tables_to_damage import KINDS, Planted, load

NUMBER = iter(range(10, 1_000_000))
EXPECTED = (FindingKind.ORPHAN_FILES, FindingKind.SMALL_FILES)
"""Hints that follow from what was done: replaced files wait for vacuum, and files are small."""


def engine_appends(table: Planted, chance: random.Random) -> None:
    database, _, name = table.name.partition(".")
    with sql_catalog(table.catalog.storage.url.render_as_string(hide_password=False)) as iceberg:
        live = iceberg.load_table((database, name))
        columns = {}
        for field in live.schema().fields:
            texts = field.name in ("note", "country")
            values = [chance.choice("abc") if texts else chance.randrange(9) for _ in range(3)]
            columns[field.name] = pa.array(values, live.schema().as_arrow().field(field.name).type)
        live.append(pa.table(columns))


def engine_deletes(table: Planted, chance: random.Random) -> None:
    column = "v" if table.kind in ("stored", "scheme") else "id"
    with sql_catalog(table.catalog.storage.url.render_as_string(hide_password=False)) as iceberg:
        iceberg.load_table(table.name).delete(f"{column} = {chance.randrange(9)}")


def own_appends(table: Planted, chance: random.Random) -> None:
    number, rows = next(NUMBER), [chance.randrange(9) for _ in range(3)]
    if table.kind == "stored":
        append(table.catalog, f"append-{number}", table.name, {(str(chance.randrange(4)),): rows})
    elif table.kind == "scheme":
        definition = table.catalog.get_table(table.name)
        assert definition.scheme is not None
        partition = chance.randrange(3)
        rows = [value for value in range(99) if definition.scheme.partition_of(value) == partition][:3]
        load(table.catalog, definition, f"load-{number}", {partition: rows})
    else:
        size = Path(write_rows(f"{table.folder}/k={number}", rows)).stat().st_size
        table.catalog.add_partitions(table.name, [NewPartition((str(number),), None, 1, len(rows), size)])


def drops_a_partition(table: Planted, chance: random.Random) -> None:
    partitions = list(table.catalog.get_partitions(table.name))
    if partitions:
        expression = f"k = {chance.choice(partitions).values[0]}"
        table.catalog.delete_partitions(f"delete-{next(NUMBER)}", table.name, expression)


def rolls_back(table: Planted, chance: random.Random) -> None:
    snapshots = live_history(table.catalog.get_table(table.name))
    # Engines' roll-backs may have left snapshots that Calve never had.
    with suppress(UnknownSnapshotError):
        table.catalog.roll_backs.to_snapshot(table.name, chance.choice(snapshots)[0])


def vacuums(table: Planted, chance: random.Random) -> None:
    if table.kind != "sql":
        table.catalog.vacuum(table.name, grace=timedelta(chance.randrange(2)))


CHANGES: dict[str, tuple[Callable[[Planted, random.Random], None], ...]] = {
    "hive": (own_appends, drops_a_partition, vacuums),
    "stored": (own_appends, drops_a_partition, rolls_back, vacuums, engine_appends, engine_deletes),
    "scheme": (own_appends, rolls_back, vacuums, engine_appends, engine_deletes),
    "migrated": (engine_appends, engine_deletes, vacuums),
    "rest": (engine_appends, engine_deletes, vacuums),
    "deletes": (engine_appends, engine_deletes, vacuums),
    "sql": (engine_appends, engine_deletes),
}


@pytest.mark.filterwarnings("ignore:Delete operation did not match", "ignore:Merge on read is not yet supported")
@pytest.mark.parametrize("seed", range(effort(1, 20)))
def test_nothing_is_found_in_sound_catalogs(catalog: Catalog, seed: int) -> None:
    chance = random.Random(seed)
    tables = [make(catalog) for make in KINDS.values()]
    for _ in range(effort(5, 20)):
        table = chance.choice(tables)
        change = chance.choice(CHANGES[table.kind])
        change(table, chance)
        report = catalog.maintenance.check(depth=Depth.ROWS)
        assert [finding for finding in report.findings if finding.kind not in EXPECTED] == [], (table, change)
