"""Commands that list, describe and change databases, tables, partitions and indexes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from catalog import Catalog, NewPartition
from catalog.errors import InvalidRequestError
from catalog.model import OnInvalid
from catalog.operations.records import OperationKind, OperationState
from catalog.partitions.adding import PartitionAdder
from catalog.settings.quality_rules import FailedCheck, PartitionCheck
from tests.support.commands import calve

TABLE = "demo.orders"


@pytest.fixture
def orders(catalog: Catalog) -> Catalog:
    catalog.create_table(
        TABLE,
        columns=[{"name": "id", "type": "int", "comment": "the number"}, ("amount", "double")],
        partition_keys=[("country", "string"), ("day", "date")],
        description="of the shop",
    )
    values = [(country, f"2024-05-0{day}") for country in ("DE", "US") for day in (1, 2, 3)]
    catalog.add_partitions(TABLE, [NewPartition(value, None, 2, 10, 100) for value in values])
    return catalog


@pytest.fixture
def quarantined(orders: Catalog) -> Catalog:
    """A load of two partitions, of which one failed its quality check."""
    operation = orders.operations.begin("night", OperationKind.ADD_PARTITIONS, TABLE)
    with orders.storage.write() as connection:
        adder = PartitionAdder(
            connection, orders._definitions, TABLE, is_quarantined=True, operation_number=operation.number
        )
        new = [NewPartition(("FR", "2024-05-01")), NewPartition(("FR", "2024-05-02"))]
        adder.add(new, if_not_exists=False, on_invalid=OnInvalid.REFUSE)
    ids = {partition.values[1]: partition.id for partition in orders.operation_partitions("night")}
    attempt = orders.operations.start_job("night", "check_quality")
    checks = [
        PartitionCheck(ids["2024-05-01"]),
        PartitionCheck(ids["2024-05-02"], (FailedCheck("row_count", "0", "1 or more"),)),
    ]
    orders.quality.record("night", "check_quality", attempt, checks, {"checked": 2, "failed": 1})
    return orders


def test_databases(catalog: Catalog) -> None:
    catalog.create_database("shop", description="all orders")
    done = calve("databases")
    assert done.stdout.splitlines()[0].split() == ["DATABASE", "LOCATION", "DESCRIPTION"]
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["demo", "shop"]
    listed = [json.loads(line) for line in calve("databases", "--json").stdout.splitlines()]
    assert [(database["name"], database["description"]) for database in listed] == [
        ("demo", None),
        ("shop", "all orders"),
    ]


@pytest.mark.parametrize("name", ["orders", "ordrs", "demo.order", "other.orders"])
def test_a_missing_table_is_told_with_similar_names(orders: Catalog, name: str) -> None:
    done = calve("describe", name)
    assert done.exit_code == 1
    assert "create it" not in done.stderr
    assert "does not exist" in done.stderr
    assert done.stderr.rstrip().endswith("Did you mean demo.orders?")


@pytest.mark.parametrize(
    "command",
    [
        "advise T",
        "bad-files T",
        "batch get T day=1",
        "batch delete T day=1",
        "batch update T -",
        "cancel-build T i",
        "check T",
        "check T --repair",
        "create-index T i day",
        "describe T",
        "drop-index T i",
        "drop-partitions T --all",
        "drop-partitions T --all --dry-run",
        "drop-partitions T --all --purge",
        "indexes T",
        "load T /raw/a.csv",
        "operations --table T",
        "partitions T",
        "partitions T --explain",
        "partitions T --sort newest",
        "quality T",
        "quarantine T",
        "quarantine T --release --reason r",
        "release T --reason r",
        "sql T",
        "vacuum T",
        "verify T",
    ],
)
def test_each_command_about_a_table_tells_similar_names(orders: Catalog, command: str) -> None:
    arguments = ["DROP TABLE demo.ordrs" if command == "sql T" and part == "T" else part for part in command.split()]
    done = calve(*("demo.ordrs" if part == "T" else part for part in arguments))
    assert done.exit_code == 1, done.output
    assert done.stderr.splitlines()[0].startswith("TableNotFoundError: table demo.ordrs does not exist")
    assert done.stderr.splitlines()[0].endswith(" Did you mean demo.orders?")


def test_a_table_is_described(orders: Catalog) -> None:
    lines = calve("describe", TABLE).stdout.splitlines()
    assert [line.split() for line in lines[1:5]] == [
        ["id", "int", "the", "number"],
        ["amount", "double"],
        ["country", "string", "partition", "key"],
        ["day", "date", "partition", "key"],
    ]
    assert "Rows            60" in lines
    described = json.loads(calve("describe", TABLE, "--json").stdout)
    assert described["table"] == TABLE
    expected = {"comment": "of the shop", "partitions": 6, "rows": 60, "files": 12, "size_in_bytes": 600}
    assert described["details"].items() >= expected.items()
    missing = calve("describe", "demo.none")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr.startswith("TableNotFoundError: ")


def test_an_index_is_created_built_and_dropped(orders: Catalog) -> None:
    created = calve("create-index", TABLE, "By_Day", "DAY", "country")
    assert (created.exit_code, created.stdout) == (0, f"Partition index by_day of {TABLE} is ACTIVE.\n")
    (index,) = orders.get_partition_indexes(TABLE)
    assert (index.name, index.keys) == ("by_day", ("day", "country"))
    assert orders.verify_partition_index(TABLE, "by_day").is_exact
    again = calve("create-index", TABLE, "by_day", "day", "country")
    assert again.exit_code == 1
    assert again.stderr.startswith("IndexAlreadyExistsError: ")
    unknown = calve("create-index", TABLE, "i", "dya")
    assert "partition index i: dya is not a partition key" in unknown.stderr
    assert calve("indexes", TABLE, "--state", "active").stdout.count("by_day") == 1
    assert calve("indexes", TABLE, "--state", "FAILED").stderr == f"{TABLE} has no FAILED partition indexes.\n"

    assert calve("drop-index", TABLE, "by_day").stdout == f"Dropped partition index by_day of {TABLE}.\n"
    assert orders.get_partition_indexes(TABLE) == []
    assert calve("drop-index", TABLE, "by_day").exit_code == 1
    assert calve("drop-index", TABLE, "by_day", "--if-exists").exit_code == 0


def test_an_index_that_does_not_admit_a_partition_fails_the_command(orders: Catalog) -> None:
    orders.add_partitions(TABLE, [NewPartition(("\1", "2024-05-01"))])
    done = calve("create-index", TABLE, "i", "country")
    assert done.exit_code == 1
    assert done.stdout.startswith(f"Partition index i of {TABLE} is FAILED: ")


def test_partitions_are_limited_counted_and_chosen_by_state(quarantined: Catalog) -> None:
    assert calve("partitions", TABLE, "--count").stdout == "7\n"
    assert calve("partitions", TABLE, "--count", "--where", "country = 'DE'").stdout == "3\n"
    assert json.loads(calve("partitions", TABLE, "--count", "--json").stdout) == {"count": 7}
    assert len(calve("partitions", TABLE, "--limit", "2").stdout.splitlines()) == 2
    assert calve("partitions", TABLE, "--state", "quarantined").stdout == "country=FR/day=2024-05-02\n"
    assert calve("partitions", TABLE, "--quarantined").stdout == "country=FR/day=2024-05-02\n"
    every = [json.loads(line) for line in calve("partitions", TABLE, "--state", "all", "--json").stdout.splitlines()]
    assert [partition["state"] for partition in every].count("QUARANTINED") == 1
    assert len(every) == 8
    assert calve("tables", "--count").stdout == "1\n"
    assert calve("tables", "--limit", "1").stdout.count(TABLE) == 1


def test_partitions_are_listed_in_an_order(orders: Catalog) -> None:
    newest = calve("partitions", TABLE, "--sort", "newest").stdout.splitlines()
    assert sorted(newest) == sorted(calve("partitions", TABLE).stdout.splitlines())
    assert calve("partitions", TABLE, "--ascending").stdout.splitlines() == newest[::-1]
    by_country = calve("partitions", TABLE, "--sort", "country", "--limit", "3").stdout.splitlines()
    assert [line.partition("/")[0] for line in by_country] == ["country=US"] * 3
    refused = calve("partitions", TABLE, "--sort", "colour")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("InvalidRequestError: partitions cannot be sorted by 'colour'; sort them by")


def test_partitions_are_dropped_by_a_filter_only(orders: Catalog) -> None:
    refused = calve("drop-partitions", TABLE)
    assert (refused.exit_code, "give either --where, or --all" in refused.stderr) == (2, True)
    assert calve("drop-partitions", TABLE, "--all", "--where", "country = 'DE'").exit_code == 2
    for options in (["drop-partitions", TABLE], ["drop-partitions", TABLE, "--purge"], ["release", TABLE]):
        refused = calve(*options, "--where", " ")
        assert (refused.exit_code, "the filter is empty" in refused.stderr) == (2, True)
    for drop in (orders.drop_partitions, orders.purge_partitions):
        with pytest.raises(InvalidRequestError, match="the filter is empty, and would drop all"):
            drop(TABLE, "")
    dry = calve("drop-partitions", TABLE, "--where", "day = '2024-05-01'", "--dry-run")
    assert sorted(dry.stdout.splitlines()) == ["country=DE/day=2024-05-01", "country=US/day=2024-05-01"]
    dropped = calve("drop-partitions", TABLE, "--where", "day = '2024-05-01'")
    assert dropped.stdout == f"Dropped 2 partition(s) of {TABLE}.\n"
    assert len(list(orders.get_partitions(TABLE))) == 4
    purged = calve("drop-partitions", TABLE, "--all", "--purge")
    assert purged.exit_code == 0
    assert purged.stdout.startswith("Dropped 4 partition(s)")
    assert list(orders.get_partitions(TABLE)) == []


def test_the_quarantined_partitions_of_all_tables_are_listed(quarantined: Catalog) -> None:
    quarantined.create_table("demo.other", columns=[("id", "int")], partition_keys=[("day", "date")])
    with quarantined.storage.write() as connection:
        adder = PartitionAdder(connection, quarantined._definitions, "demo.other", is_quarantined=True)
        adder.add([NewPartition(("2024-05-03",))], if_not_exists=False, on_invalid=OnInvalid.REFUSE)
    assert [line.split()[:2] for line in calve("quarantine").stdout.splitlines()] == [
        ["TABLE", "PARTITION"],
        [TABLE, "country=FR/day=2024-05-02"],
        ["demo.other", "day=2024-05-03"],
    ]
    first, second = (json.loads(line) for line in calve("quarantine", "--json").stdout.splitlines())
    assert first == {
        "table": TABLE,
        "partition": "country=FR/day=2024-05-02",
        "failures": ["row_count: 0, expected 1 or more"],
    }
    assert (second["table"], second["failures"]) == ("demo.other", ["not checked yet"])
    assert calve("quarantine", "--count").stdout == "2\n"
    assert calve("quarantine", "--limit", "1", "--json").stdout.count("\n") == 1
    for wrong in (["--where", "day = '2024-05-03'"], ["--release", "--reason", "checked"]):
        refused = calve("quarantine", *wrong)
        assert (refused.exit_code, "name the TABLE" in refused.stderr) == (2, True)
    for table in (TABLE, "demo.other"):
        quarantined.release_partitions(table)
    nothing = calve("quarantine")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "No table has quarantined partitions.\n")


def test_loads_that_left_something_out_are_named(orders: Catalog) -> None:
    discarded = {"rows": 1200, "values": 3, "files": 2, "of_files": [], "examples": []}
    orders.operations.begin("load", OperationKind.ADD_PARTITIONS, TABLE, {})
    with orders.operations.attempt("load", "validate_source") as attempt:
        orders.operations.finish_job("load", "validate_source", attempt, {"discarded": discarded})
    shown = calve("operations", "load").stdout
    assert "1,200 row(s) and 3 value(s) were left out by the contract; --json shows examples" in shown
    [line] = calve("operations", "load", "--json").stdout.splitlines()
    assert json.loads(line)["report"]["validate_source"]["discarded"] == discarded


def test_loads_that_set_files_aside_are_named(orders: Catalog) -> None:
    orders.operations.begin("load", OperationKind.ADD_PARTITIONS, TABLE, {})
    with orders.operations.attempt("load", "validate_source") as attempt:
        report = {"set_aside": {"files": 2, "rows": 5, "problems": []}}
        orders.operations.finish_job("load", "validate_source", attempt, report)
    assert (
        f"2 file(s) were set aside (calve bad-files {TABLE}); --json shows examples"
        in calve("operations", "load").stdout
    )


def test_quarantined_partitions_are_listed_and_released_with_a_reason(quarantined: Catalog) -> None:
    assert [line.split("  ")[0] for line in calve("quarantine", TABLE).stdout.splitlines()] == [
        "PARTITION",
        "country=FR/day=2024-05-02",
    ]
    held = json.loads(calve("quarantine", TABLE, "--json").stdout)
    assert held == {"partition": "country=FR/day=2024-05-02", "failures": ["row_count: 0, expected 1 or more"]}
    assert calve("quarantine", TABLE, "--count").stdout == "1\n"
    (operation,) = (json.loads(line) for line in calve("operations", "--json").stdout.splitlines())
    assert operation["quarantined_partitions"] == 1
    assert f"1 partition(s) are quarantined: calve quarantine {TABLE}" in calve("operations").stdout

    for incomplete in (["--release"], ["--reason", "checked"]):
        assert calve("quarantine", TABLE, *incomplete).exit_code == 2
    released = calve("quarantine", TABLE, "--release", "--reason", "the shop was closed")
    assert released.stdout == f"Released 1 partition(s) of {TABLE}.\n"
    assert len(list(quarantined.get_partitions(TABLE, "country = 'FR'"))) == 2
    newest, load = quarantined.operations.list()
    assert (newest.kind, newest.state) == (OperationKind.RELEASE_PARTITIONS, OperationState.CLEANED)
    assert (newest.request["reason"], newest.requested_by) == ("the shop was closed", "calve")
    shown = calve("operations").stdout
    assert "the shop was closed" in shown
    assert "are quarantined" not in shown
    assert quarantined.count_quarantined([newest, load]) == {}
    nothing = calve("quarantine", TABLE)
    assert (nothing.exit_code, nothing.stderr) == (0, f"{TABLE} has no quarantined partitions.\n")
    calve("release", TABLE, "--reason", "again")
    assert len(quarantined.operations.list()) == 2


def test_committed_operations_have_succeeded(orders: Catalog) -> None:
    for name, states in (
        ("load", (OperationState.RUNNING, OperationState.COMMITTED)),
        ("statement", (OperationState.CLEANED,)),
        ("other", ()),
    ):
        orders.operations.begin(name, OperationKind.ADD_PARTITIONS, f"{TABLE}_{name}")
        with orders.storage.write() as connection:
            for state in states:
                orders.operations.advance(connection, name, state)
    shown = [line.split() for line in calve("operations", "--state", "succeeded").stdout.splitlines()[1:]]
    assert [(words[0], words[3]) for words in shown] == [("statement", "SUCCEEDED"), ("load", "SUCCEEDED")]
    [load] = map(json.loads, calve("operations", "--state", "COMMITTED", "--json").stdout.splitlines())
    assert (load["operation"], load["state"]) == ("load", "COMMITTED")


def test_operations_are_limited_counted_and_chosen_by_state(orders: Catalog) -> None:
    for name in ("a", "b", "c"):
        orders.operations.begin(name, OperationKind.VERIFY_INDEX, TABLE)
    orders.operations.fail("b", "TEST", "because")
    assert calve("operations", "--count").stdout == "3\n"
    assert calve("operations", "--count", "--state", "failed", "--json").stdout == '{"count": 1}\n'
    listed = calve("operations", "--json", "--limit", "2").stdout.splitlines()
    assert [json.loads(line)["operation"] for line in listed] == ["c", "b"]
    assert json.loads(calve("operations", "--state", "FAILED", "--json").stdout)["operation"] == "b"
    assert calve("operations", "--table", "demo.none", "--count").stdout == "0\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str) -> None:
    done = calve("completion", shell)
    assert done.exit_code == 0
    assert f"_CALVE_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("calve ta", ["tables"]),
        ("calve drop-", ["drop-index", "drop-partitions"]),
        ("calve describe DEMO.o", [TABLE]),
        ("calve describe demo.x", []),
        ("calve partitions --st", ["--state"]),
        ("calve partitions --state q", ["quarantined"]),
    ],
)
def test_words_are_completed(orders: Catalog, words: str, expected: list[str]) -> None:
    typed = words.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", "from catalog.cli.main import main; main(prog_name='calve')"],
        env={
            **os.environ,
            "_CALVE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(typed) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(",")[2] for line in done.stdout.split()] == expected
