"""Tables of a Hive Metastore are imported through Airflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from catalog import Catalog
from tests.support.hive_metastore import HiveMetastoreServer, Metastore

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

TABLE = "imported.orders"


@pytest.fixture
def metastore(hive_metastore: HiveMetastoreServer) -> Iterator[Metastore]:
    with hive_metastore.client() as source:
        yield Metastore(hive_metastore, source, "imported")
    hive_metastore.drop_database("imported")


@pytest.mark.parametrize("stack", ["postgresql"], indirect=True)
def test_a_metastores_tables_come_in_and_what_is_refused_is_said(
    metastore: Metastore, catalog: Catalog, run_dag: Callable[..., Any], start_dag: Callable[..., Any]
) -> None:
    metastore.create()
    metastore.add([("2024-01-01", str(n)) for n in range(20)])
    metastore.create("lake", (), parameters={"table_type": "ICEBERG"})
    form = {"source": metastore.address, "tables": ["imported"]}

    would = run_dag("import_tables", form)
    assert [(row["table"], row["outcome"], row["added"]) for row in would.result("summarise")] == [
        ("imported.lake", "refused", 0),
        (TABLE, "created", 20),
    ]
    assert "imported" not in [each.name for each in catalog.list_databases()]

    done = run_dag("import_tables", {**form, "dry_run": False})
    assert f"| {TABLE} | created | 20 | 20 | 0 | 0 | 0 |" in done.log("summarise", is_aligned=False)
    assert len(list(catalog.get_partitions(TABLE))) == 20

    metastore.thrift.drop_partition("imported", "orders", ["2024-01-01", "7"], False)
    dropping = start_dag("import_tables", {**form, "dry_run": False, "drop_vanished": True})
    assert dropping.question()[0] == "Drop 1 vanished partitions of 1 table(s)?"
    dropping.answer("Approve")
    dropping.wait()
    assert len(list(catalog.get_partitions(TABLE))) == 19

    failed = run_dag("import_tables", {**form, "tables": ["imported.lake"], "dry_run": False}, "failed")
    assert "is an Iceberg table" in failed.log("summarise")
