"""Wrong entries of the list of tables: each has its sentence, from `calve validate-config` and when DAGs are parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.commands import calve

DAG_FILE = Path(__file__).parents[2] / "dags" / "add_partitions_dag.py"

GOOD = "shop.good: {source: /data, keys: {day: date}, schedule: '@daily'}"
TYPES = (
    "use string, char(1 … 255), varchar(1 … 65535), tinyint, smallint, int, bigint (long), float, double, "
    "decimal(p,s), boolean, date or timestamp"
)
SCHEDULES = "@once, @continuous, @hourly, @daily, @weekly, @monthly, @quarterly, @yearly"

WRONG: dict[str, tuple[str, str, Sequence[str]]] = {
    "unknown field": (
        "shop.orders: {source: /x, rebalance: {aply: true}}",
        "shop.orders",
        [
            "unknown rebalance field aply; the fields are apply, approval, maximum_files, merge_files, split_factor, "
            "split_files"
        ],
    ),
    "notifiers": (
        "shop.orders: {source: /x, notify: {on_success: [a.B], on_failure: a.B, on_quality: [B, {class: a.B, to: me},"
        " {class: a.B, arguments: [1]}, 7]}}",
        "shop.orders",
        [
            "unknown notify field on_success; the fields are on_failure, on_approval, on_quality",
            "notify.on_failure is 'a.B', expected a list such as [my.Notifier]",
            "notify.on_quality, notifier 1: class is 'B', expected a dotted path such as my.Notifier",
            "notify.on_quality, notifier 2: unknown field to; use class and arguments",
            "notify.on_quality, notifier 3: arguments is [1], expected a mapping of names to values",
            "notify.on_quality, notifier 4 is 7, expected the path of a class such as my.Notifier, or a mapping with "
            "class and arguments",
        ],
    ),
    "notify": (
        "shop.orders: {source: /x, notify: [a.B]}",
        "shop.orders",
        ["notify is ['a.B'], expected a mapping such as {on_failure: [my.Notifier]}"],
    ),
    "duplicate table": (
        "shop.orders: {source: /x}, SHOP.Orders: {source: /y}",
        "SHOP.Orders",
        ["the list has two entries of shop.orders; remove one"],
    ),
    "missing database": (
        "orders: {source: /x}",
        "orders",
        ["the name has no database; write it as database.table: default.orders"],
    ),
    "schedule": (
        "shop.orders: {source: /x, schedule: 61 * * * *}",
        "shop.orders",
        [f"schedule is '61 * * * *', expected a cron expression such as '0 6 * * *', one of {SCHEDULES}, or null"],
    ),
    "types": (
        "shop.orders: {source: /x, keys: {day: dat}, columns: {amount: 'decimal(99,1)', note: txt}}",
        "shop.orders",
        [
            f"keys.day: type 'dat' cannot be the type of a partition key; {TYPES}",
            "columns.amount: type 'decimal(99,1)' is not a valid decimal type; use decimal(p,s) with p from 1 to 38 "
            "and s from 0 to p",
            "columns.note: type 'txt' is not known; use a Hive type such as bigint or array<string>",
        ],
    ),
    "function": (
        "shop.orders: {source: /x, keys: {day: date}, quality: {agree: {day: to_dat(ordered_at)}}}",
        "shop.orders",
        ["quality.agree.day is 'to_dat(ordered_at)', but Spark has no function to_dat; did you mean to_date?"],
    ),
    "quality": (
        "shop.orders: {source: /x, keys: {day: date}, quality: {on_failure: shout, row_count: {per: [dya]}, "
        "columns: {amount: {min: 9, max: 1}, note: {sum: 1}}}}",
        "shop.orders",
        [
            "quality.on_failure is 'shout', expected warn, fail or quarantine",
            "quality.row_count.per names dya, which is not a partition key; the keys are day",
            "quality.columns.amount has min 9 and max 1, which no value fits; exchange them",
            "quality.columns.note has unknown fields sum; it takes min, max, max_null_ratio, sample",
        ],
    ),
    "index keys": (
        "shop.orders: {source: /x, keys: {day: dat}, indexes: {a: [dya], b: [day, Day], c: [], d: [day], e: [day]}}",
        "shop.orders",
        [
            f"keys.day: type 'dat' cannot be the type of a partition key; {TYPES}",
            "index a has 'dya', not a partition key; the keys are day",
            "index b is on ['day', 'day']; name one or more keys, each once",
            "index c is on []; name one or more keys, each once",
            "index e is on the same keys as d, day; remove one of them",
            "indexes has 5 partition indexes (a, b, c, d, e); a table has at most 3, so remove the others",
        ],
    ),
    "mode and formats": (
        "shop.orders: {source: /x, mode: newest, format: xml, source_format: xls}",
        "shop.orders",
        [
            "mode is 'newest', expected one of new, append, replace, merge",
            "format is 'xml', expected one of parquet, orc, avro, csv, iceberg",
            "source_format is 'xls', expected one of csv, json, parquet, orc, avro",
        ],
    ),
    "encoding": (
        "shop.orders: {source: /x, source_options: {Encoding: utf9}}",
        "shop.orders",
        [
            "source_options has Encoding utf9, which is no encoding of CSV files; did you mean UTF-8? The encodings "
            "are US-ASCII, ISO-8859-1, UTF-8, UTF-16, UTF-16BE, UTF-16LE, UTF-32"
        ],
    ),
    "all columns listed": (
        "shop.orders: {source: /x, source_options: {header: false}, keys: {day: date}, columns: {id: int, at: date}, "
        "required: [Id, att], schedule: soon, merge: {keys: [idd, day], order: moment}}",
        "shop.orders",
        [
            f"schedule is 'soon', expected a cron expression such as '0 6 * * *', one of {SCHEDULES}, or null",
            "required has att, which files without a header do not have; did you mean at? Correct it, or list the "
            "column in columns",
            "merge.keys has idd, which files without a header do not have; did you mean id? Correct it, or list the "
            "column in columns",
            "merge.order has moment, which files without a header do not have; their columns are day, id, at. Correct "
            "it, or list the column in columns",
        ],
    ),
    "rebalance": (
        "shop.orders: {rebalance: {apply: 1, split_factor: 1}, source: '${CALVE_NO_SUCH}/x'}",
        "shop.orders",
        [
            "rebalance.apply is 1, expected true or false",
            "rebalance.split_factor is 1, expected a number from 2.5 to 1000",
            "source ${CALVE_NO_SUCH}/x needs the environment variable CALVE_NO_SUCH",
        ],
    ),
}


def validated(path: Path) -> list[str]:
    done = calve("validate-config", str(path), CALVE_CATALOG_URL="")
    assert done.exit_code == 1
    assert "InvalidConfigurationError: 1 of 2 tables are wrong; correct their entries" in done.stderr
    return done.stdout.splitlines()


def parsed(path: Path) -> list[str]:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(str(DAG_FILE), bundle_name="dags-folder")
    assert bag.import_errors == {}
    good = bag.dags.pop("add_partitions.shop.good")
    assert (good.schedule, "wrong entry" in good.tags) == ("@daily", False)
    (wrong,) = (dag for dag in bag.dags.values() if dag.dag_id != "add_partitions")
    assert "wrong entry" in wrong.tags
    text = str(wrong.doc_md).removeprefix("**Wrong entry.** ")
    return [line for line in text.splitlines() if line.startswith(str(path))]


@pytest.mark.parametrize("door", [validated, parsed])
def test_an_entry_beside_the_tables_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: Callable[[Path], list[str]]
) -> None:
    path = tmp_path / "tables.yaml"
    path.write_text(f"shared: {{a.b: 1}}\nshop.late: {{source: /x}}\ntables: {{{GOOD}}}\n")
    monkeypatch.setenv("CALVE_TABLES", str(path))
    (problem,) = door(path)
    assert problem == f"{path}, table shop.late: the entry in line 2 is beside `tables:`; move it below, and indent it"


@pytest.mark.parametrize("door", [validated, parsed])
@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_wrong_entry_has_its_sentences(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, str, Sequence[str]],
    door: Callable[[Path], list[str]],
) -> None:
    entries, name, sentences = case
    path = tmp_path / "tables.yaml"
    path.write_text(f"tables: {{{GOOD}, {entries}}}")
    monkeypatch.setenv("CALVE_TABLES", str(path))
    assert sorted(door(path)) == sorted(f"{path}, table {name}: {sentence}" for sentence in sentences)
