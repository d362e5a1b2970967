"""Tables of all kinds, for the pages that show them."""

from __future__ import annotations

import random
from datetime import date, timedelta

from sqlalchemy import insert, update

from catalog import Catalog, IndexDefinition, NewPartition
from catalog.datafiles.files import NewFile
from catalog.engine_tables.model import NewTable
from catalog.engine_tables.names import Identifier, Namespace
from catalog.model import Column
from catalog.storage.schema import PartitionCheckRow, PartitionIndexRow, PartitionRow
from catalog.tables.schemes import scheme_from_properties
from tests.support.iceberg_tables import make_orders, migrate, write_rows
from tests.support.partition_files import append
from tests.support.published import add_files

COLUMNS = [("id", "bigint"), ("note", "string")]
KINDS = {
    "shop.orders": "Hive",
    "shop.parts": "Hive",
    "shop.stores": "Hive",
    "shop.many": "Hive",
    "shop.plain": "Hive",
    "shop.empty": "Hive",
    "shop.recent": "view",
    "shop.hashed": "HASH scheme",
    "shop.ranged": "RANGE scheme",
    "shop.listed": "LIST scheme",
    "shop.stored": "Iceberg",
    "shop.migrated": "Iceberg",
    "shop.of_engines": "Iceberg",
}
"""The kind of each table that `make_tables` makes."""


def make_tables(catalog: Catalog) -> None:
    """Make the database `shop` with a table of each kind."""
    chance = random.Random(3)
    catalog.create_database("shop", if_not_exists=True)
    _orders(catalog, chance)
    keys = [("year", "int"), ("month", "int"), ("day", "int")]
    catalog.create_table("shop.parts", columns=COLUMNS, partition_keys=keys)
    days = [date(2023, 11, 1) + timedelta(number) for number in range(120) if number not in (40, 41, 77)]
    catalog.add_partitions(
        "shop.parts",
        [NewPartition((str(day.year), str(day.month), str(day.day)), None, 1, 900, 90_000) for day in days],
    )
    catalog.create_table("shop.stores", columns=COLUMNS, partition_keys=[("region", "string"), ("store", "int")])
    catalog.add_partitions("shop.stores", [_store(chance, number) for number in range(60)])
    catalog.create_table("shop.many", columns=COLUMNS, partition_keys=[("shard", "int"), ("bucket", "int")])
    catalog.add_partitions("shop.many", (NewPartition((str(number % 6), str(number // 6))) for number in range(6_000)))
    plain = catalog.create_table("shop.plain", columns=COLUMNS, properties={"owner": "ann"})
    write_rows(plain.location, [1, 2, 3])
    catalog.create_table("shop.empty", columns=COLUMNS, partition_keys=[("day", "date")])
    catalog.create_view("shop.recent", "SELECT * FROM shop.orders WHERE day > '2024-03-01'", columns=COLUMNS)
    _schemes(catalog)
    catalog.create_table("shop.stored", columns=[("v", "int")], partition_keys=[("k", "int")], format="iceberg")
    append(catalog, "load-1", "shop.stored", {("1",): [1, 2], ("2",): [3]})
    make_orders(catalog, "shop.migrated")
    migrate(catalog, "shop.migrated")
    fields = [{"id": 1, "name": "id", "type": "long", "required": True}]
    identifier = Identifier.of(Namespace.of(["shop"]), "of_engines")
    catalog.iceberg.create(identifier, NewTable({"type": "struct", "fields": fields}))


def _orders(catalog: Catalog, chance: random.Random) -> None:
    name, first = "shop.orders", date(2023, 10, 1)
    by_day = [IndexDefinition("by_day", ("day", "country"))]
    keys = [("country", "string"), ("day", "date")]
    catalog.create_table(name, columns=COLUMNS, partition_keys=keys, indexes=by_day, description="Orders of the shop.")
    partitions = []
    for country in ("DE", "FR", "IT", "US"):
        for number in range(200):
            if number in (90, 91) or chance.random() < 0.02:
                continue
            rows = int((5 if country == "US" else 1) * (500 + 400 * chance.random()) * (8 if number == 60 else 1))
            day = first + timedelta(number)
            partitions.append(NewPartition((country, str(day)), None, 1 + number % 4, rows, rows * 90))
    catalog.add_partitions(name, partitions)
    write_rows(catalog.get_partition(name, ("DE", str(first))).location, [1, 2])
    ids = [partition.id for partition in catalog.get_partitions(name, "country = 'FR' and day >= '2024-03-01'")]
    with catalog.storage.write() as connection:
        connection.execute(update(PartitionRow).where(PartitionRow.id.in_(ids[:2])).values(is_quarantined=True))
        failure = {"check": "rows", "observed": "3", "allowed": "at least 100"}
        rows = [
            {
                "partition_id": number,
                "operation_number": 1,
                "passed": place > 1,
                "failures": [failure] if place < 2 else [],
                "checked_at_ms": 1,
            }
            for place, number in enumerate(ids)
        ]
        connection.execute(insert(PartitionCheckRow), rows)
    catalog.create_partition_index(name, "by_country", ["country"])
    catalog.create_partition_index(name, "by_both", ["country", "day"])
    with catalog.storage.write() as connection:
        offending = {"values": ["DE", "soon"], "location": "/lake/x", "problem": "key day: 'soon' is no date"}
        failed = {
            "state": "FAILED",
            "failure_code": "INVALID_TYPE",
            "failure_detail": "1 partitions do not fit the index, for instance: key day: 'soon' is no date",
            "offending": [offending],
            "failed_at_ms": 1_700_000_000_000,
        }
        connection.execute(update(PartitionIndexRow).where(PartitionIndexRow.name == "by_both").values(**failed))


def _store(chance: random.Random, number: int) -> NewPartition:
    rows = int(1000 * chance.random()) * (40 if number == 7 else 1) + 1
    region = None if number == 59 else ("north", "south", "o'west\\")[number % 3]
    return NewPartition((region, str(number)), None, 30 if number % 7 == 0 else 1, rows, rows * 100)


def _schemes(catalog: Catalog) -> None:
    schemes = {
        "shop.hashed": ("int", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "4"}),
        "shop.ranged": ("date", {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "2023-01-01, 2024-01-01, 2025-01-01"}),
        "shop.listed": ("string", {"PARTITION_TYPE": "LIST", "LIST_INFO": "DE, (FR, IT), US"}),
    }
    for name, (kind, properties) in schemes.items():
        scheme = scheme_from_properties(Column("placed", kind), properties)
        catalog.create_table(name, columns=[*COLUMNS, ("placed", kind)], scheme=scheme)
        files = [
            NewFile(number % len(scheme.ids), f"f-{number}.parquet", 100 * (number + 1), 5_000, {})
            for number in range(9)
        ]
        add_files(catalog, name, files)
