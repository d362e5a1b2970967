"""`calve validate-config`: beside the catalog's tables. Its sentences about single entries: tests/dags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog import Catalog, IndexDefinition, NewPartition
from catalog.schemes.hashing import HashScheme
from tests.support.commands import calve


@pytest.fixture
def orders(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    catalog.create_table(
        "demo.orders",
        columns=[("id", "int"), ("total", "double")],
        partition_keys=[("country", "string"), ("day", "date")],
        indexes=[IndexDefinition("by_day", ("day", "country"))],
    )
    # In its files, the column amount has the name total, as in tables of earlier versions.
    catalog.add_partitions("demo.orders", [NewPartition(("DE", "2026-01-01"))])
    with monkeypatch.context() as earlier:
        earlier.setattr("catalog.tables.altering.refuse_other_names", lambda *_: None)
        catalog.alter_table("demo.orders", change_columns={"total": ("amount", "double")})
    catalog.create_table("demo.hashed", columns=[("id", "int")], scheme=HashScheme("id", "int", count=4))
    catalog.create_view("demo.late", "SELECT 1")
    return catalog


def write(folder: Path, *entries: str) -> str:
    path = folder / "tables.yaml"
    path.write_text(f"tables: {{{', '.join(entries)}}}")
    return str(path)


def test_a_valid_list(orders: Catalog, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "demo.orders: {source: /x, keys: {country: string, day: DATE}, indexes: {by_day: [day, country], i: [day]}}",
        "demo.hashed: {rebalance: {apply: true}}",
        "demo.new: {source: /x, keys: {day: date}, mode: merge, merge: {keys: [idd]}, columns: {id: int}, "
        "quality: {references: {id: demo.orders.ID, day: demo.new.day}}}",
    )
    done = calve("validate-config", path)
    assert (done.exit_code, done.stdout) == (0, "3 tables, all valid\n")
    assert (
        done.stderr
        == "Note on demo.new: merge.keys has idd, which is not listed in keys or columns; did you mean id?\n"
    )
    assert [table.name for table in orders.list_tables("demo")] == ["hashed", "late", "orders"]
    assert len(orders.get_partition_indexes("demo.orders")) == 1
    assert calve("validate-config", write(tmp_path)).stdout == "0 tables, all valid\n"


@pytest.mark.parametrize(
    ("entry", "sentences"),
    [
        (
            "demo.orders: {source: /x, indexes: {i: [dya], by_day: [day], j: [day, country]}}",
            [
                "index i has dya, not a partition key of the table in the catalog; its keys are country string, day "
                "date; correct the index",
                "index by_day is on day, but that of the table in the catalog is on day, country; write these keys, "
                "another name, or drop the index",
                "index j is on day, country, as the index by_day of the table in the catalog already is; write that "
                "name",
            ],
        ),
        (
            "demo.orders: {source: /x, keys: {day: string, country: string}}",
            [
                "keys are day, country, but those of the table in the catalog are country string, day date; write "
                "these in their order, or leave out keys",
                "keys.day is string, but the table in the catalog has the type date; write date, or change the table: "
                "ALTER TABLE demo.orders CHANGE COLUMN day day string",
            ],
        ),
        (
            "demo.orders: {source: /x, keys: {region: string, day: date}, indexes: {i: [region]}}",
            [
                "keys has region, which the table in the catalog does not have; its keys are country string, day "
                "date. Write these, or leave out keys",
            ],
        ),
        (
            "demo.hashed: {source: /x, mode: new, keys: {id: bigint}, quality: {on_failure: quarantine}}",
            [
                "mode is new, but the partitions of HASH exist before their rows; the modes of such a table are "
                "append, replace, merge",
                "keys has id, but HASH places rows by the column id, which the files have to have; leave out keys",
                "quality.on_failure is quarantine, which hides new partitions, but rows are added to partitions that "
                "readers see; write warn or fail",
            ],
        ),
        (
            "demo.orders: {source: /x, required: [ID], quality: {unique: [{columns: [total, id], within: table}], "
            "columns: {day: {max_null_ratio: 0}, nothing: {min: 1}}}}",
            [
                "quality.columns has nothing, which the table in the catalog does not have; its columns are id, "
                "amount, country, day. Correct the rule",
                "quality.unique has total, which the table in the catalog does not have; it is named amount now. "
                "Correct the rule",
            ],
        ),
        (
            "demo.orders: {source: /x, mode: merge, merge: {keys: [idd], order: at, delete: amuont < 0 and user = 1}, "
            "quality: {agree: {day: to_date(dya)}, references: {idd: demo.hashed.idd, country: demo.hashd.id}}}",
            [
                "merge.keys has idd, which the table in the catalog does not have; did you mean id? Correct the rule",
                "merge.order has at, which the table in the catalog does not have; its columns are id, amount, "
                "country, day. Correct the rule",
                "merge.delete has amuont, which the table in the catalog does not have; did you mean amount? Correct "
                "the rule",
                "quality.agree.day has dya, which the table in the catalog does not have; did you mean day? Correct "
                "the rule",
                "quality.references has idd, which the table in the catalog does not have; did you mean id? Correct "
                "the rule",
                "quality.references.idd is demo.hashed.idd, but demo.hashed in the catalog has no column idd; did you "
                "mean id? Correct the rule",
                "quality.references.country is demo.hashd.id, but neither the catalog nor the list has a table "
                "demo.hashd; did you mean demo.hashed? Correct the rule",
            ],
        ),
        (
            "demo.fresh: {source: /x, columns: {id: int}}",
            [
                "keys is missing, but the table is not in the catalog, and a load that creates it needs them; name its "
                "partition keys with their types, such as keys: {day: date}, or create the table first"
            ],
        ),
        (
            "demo.late: {source: /x}",
            ["source is /x, but the table in the catalog is a view, which has no rows of its own; remove the source"],
        ),
    ],
)
def test_what_an_entry_says_otherwise_than_its_table(
    orders: Catalog, tmp_path: Path, entry: str, sentences: list[str]
) -> None:
    path = write(tmp_path, entry, "demo.new: {source: /x, keys: {day: date}}")
    done = calve("validate-config", path, "--json")
    assert done.exit_code == 1
    assert done.stderr == "InvalidConfigurationError: 1 of 2 tables are wrong; correct their entries\n"
    table = entry.partition(":")[0]
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"table": table, "problem": f"{path}, table {table}: {sentence}"} for sentence in sentences
    ]


def test_without_a_catalog_the_list_is_checked_alone(tmp_path: Path) -> None:
    path, database = write(tmp_path, "demo.orders: {source: /x}"), tmp_path / "none.db"
    done = calve("validate-config", path, CALVE_CATALOG_URL=f"sqlite:///{database}")
    assert (done.exit_code, done.stdout) == (0, "1 table, all valid\n")
    assert done.stderr.startswith("The entries were not compared with a catalog: there is no catalog at")
    assert not database.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; it needs a mapping `tables:` of table names to entries, or `tables: {}` if there are none"),
        ("# later\n", "is empty; it needs"),
        ("shop.a: {source: /x}", "has no `tables:`, but shop.a; it needs a mapping `tables:`"),
        ("tabless: {shop.a: {source: /x}}", "has no `tables:`, but tabless; did you mean tables? It needs"),
        ("tables:\n", "needs one mapping `tables:` of table names to entries"),
    ],
)
def test_a_list_without_tables(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tables.yaml"
    path.write_text(text)
    done = calve("validate-config", str(path), CALVE_CATALOG_URL="")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"InvalidConfigurationError: {path} {message}")


def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    done = calve("validate-config", str(tmp_path / "none.yaml"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "none.yaml cannot be read: No such file or directory; CALVE_TABLES, or an argument, names" in done.stderr
