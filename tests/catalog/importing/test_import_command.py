"""The command that imports tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.catalog.importing.test_imports import sales as sales
from tests.support.glue_endpoint import GlueEndpoint, storage


def calve(*arguments: str) -> Any:
    from click.testing import CliRunner

    from catalog.cli.main import main

    return CliRunner().invoke(main, ["import", *arguments])


@pytest.mark.usefixtures("catalog")
def test_the_command_says_table_by_table_what_it_did(sales: GlueEndpoint) -> None:
    done = calve(sales.source("/sales.orders,sales.p*"))
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:4] == ["TABLE", "OUTCOME", "PARTITIONS", "ADDED"]
    assert lines[1] == ["sales.orders", "created", "5", "5", "0", "0", "0"]
    assert lines[2] == ["sales.prices", "created", "0", "0", "0", "0", "0"]
    sales.client.delete_partition(DatabaseName="sales", TableName="orders", PartitionValues=["2024-01-01", "3"])
    (again,) = map(json.loads, calve(sales.source(), "sales.orders", "--dry-run", "--json").stdout.splitlines())
    assert again["partitions"]["vanished"] == {"count": 1, "first": ["day=2024-01-01/n=3"]}
    done = calve(sales.source(), "sales.orders", "--drop-vanished")
    assert "vanished: day=2024-01-01/n=3" in done.stdout


@pytest.mark.usefixtures("catalog")
def test_the_command_ends_with_an_error_when_a_table_was_not_imported(sales: GlueEndpoint) -> None:
    sales.create_table("sales", "lake", Parameters={"table_type": "ICEBERG"}, StorageDescriptor=storage("/i"))
    done = calve(sales.source(), "sales")
    assert done.exit_code == 0
    assert "is an Iceberg table" in done.stdout
    done = calve(sales.source(), "sales.lake", "sales.prices")
    assert done.exit_code == 1
    assert done.stderr.startswith("TablesNotImportedError: 1 of 2 tables were not imported: sales.lake: ")
    done = calve("thrift://x")
    assert (done.exit_code, done.stderr.split(":")[0]) == (1, "InvalidSourceError")
    assert calve(sales.source("/sales.none*")).stderr.endswith("has no matching table.\n")
