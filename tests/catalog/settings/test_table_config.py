"""The YAML list of tables: entries, and errors of invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvalidConfigurationError, WrongFieldError
from catalog.model import Column, FileFormat, Table
from catalog.operations.job_requests import ValidateSourceJob
from catalog.settings.merge_rules import MergeRule
from catalog.settings.places import allowed_locations
from catalog.settings.rebalance_rules import RebalanceRules
from catalog.settings.table_config import TableConfig, configured_load, load_sources, read_table_list, rebalance_rules
from catalog.settings.wanted_indexes import WantedIndexes, wanted_indexes

ENTRY: dict[str, Any] = {"source": "/raw", "keys": {"Country": "string", "day": "int"}}


def load_table_configs(path: Path | None = None) -> dict[str, TableConfig]:
    """Return all entries of the list; raise the error of the first wrong one."""
    listed = read_table_list(path)
    for entry in listed.wrong.values():
        raise entry.error
    return dict(listed.configs)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "tables.yaml"
    monkeypatch.setenv("CALVE_TABLES", str(path))

    def write_entry(**changes: Any) -> None:
        path.write_text(yaml.safe_dump({"tables": {"Shop.Orders": {**ENTRY, **changes}}}, sort_keys=False))

    return write_entry


def test_names_are_normalised_and_defaults_filled_in(write: Any) -> None:
    write(indexes={"by_day": ["Day"]}, source_options={"header": True}, mode="append", required=["ID"])
    (config,) = load_table_configs().values()
    assert config.table == "shop.orders"
    assert list(config.keys.items()) == [("country", "string"), ("day", "int")]
    assert (config.source_format, config.format, config.invalid_partitions) == ("csv", "parquet", "fail")
    assert (config.indexes, config.source_options) == ({"by_day": ["day"]}, {"header": "true"})
    assert (config.mode, config.required) == ("append", ("id",))
    assert configured_load({"table": "shop.orders", "mode": "new"}).mode == "new"


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"multiLine": True}, {"header": "true", "multiLine": "true"}),
        ({}, {"header": "true"}),
        ({"sep": ";", "Header": False}, {"header": "false", "sep": ";"}),
    ],
)
def test_options_of_an_entry_are_added_to_the_defaults(write: Any, given: Any, options: Any) -> None:
    write(source_options=given)
    assert load_table_configs()["shop.orders"].source_options == options
    write()
    assert configured_load({"table": "shop.orders"}, {"source_options": given}).source_options == options


def test_options_of_one_run_override_those_of_the_entry_in_any_case(write: Any) -> None:
    write(source_options={"sep": ";", "header": False}, columns={"id": "int", "note": "string"})
    run = configured_load({"table": "shop.orders"}, {"source_options": {"HEADER": "true"}, "columns": {"ID": "bigint"}})
    assert run.source_options == {"header": "true", "sep": ";"}
    assert list(run.columns.items()) == [("id", "bigint"), ("note", "string")]


def test_a_rule_of_merging_is_kept_for_runs_with_that_mode(write: Any) -> None:
    rule = {"keys": ["ID", "day"], "order": "At", "delete": "state = 'gone'"}
    write(merge=rule)
    run = configured_load({"table": "shop.orders", "mode": "merge"})
    assert MergeRule.from_config(run.job_request()["merge"]) == MergeRule(("id", "day"), "at", "state = 'gone'")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"mode": "merge"}, "merge has keys None, not a list of columns that identify a row; expected"),
        ({"merge": []}, r"merge is \[\], expected a mapping"),
        ({"merge": ["id"]}, r"merge is \['id'\], expected a mapping"),
        ({"merge": {"keys": "id"}}, "merge has keys 'id', not a list"),
        ({"merge": {"keys": ["id", "ID"]}}, "merge has keys id, id; name each column once"),
        ({"merge": {"keys": ["id"], "by": "at"}}, "merge has unknown field by; the fields are keys, order, delete"),
        ({"merge": {"keys": ["id"], "order": 1}}, "merge has order 1, expected"),
    ],
)
def test_a_wrong_rule_of_merging_is_named(write: Any, entry: dict[str, Any], message: str) -> None:
    write(**entry)
    with pytest.raises(InvalidConfigurationError, match=rf"table Shop\.Orders: {message}"):
        load_table_configs()


@pytest.mark.parametrize(
    ("written", "kind", "expression"),
    [
        ("date", "date", None),
        ("decimal(9,2)", "decimal(9,2)", None),
        ("char(3)", "char(3)", None),
        ("to_date(ordered_at)", "date", "to_date(ordered_at)"),
        ("YEAR( to_date(a, ')') )", "int", "YEAR( to_date(a, ')') )"),
        ("cast(code as DECIMAL(9, 2))", "decimal(9,2)", "cast(code as DECIMAL(9, 2))"),
        ("left(lower(country), 2)", "string", "left(lower(country), 2)"),
        ({"type": "date"}, "date", None),
        ({"from": "to_date(at)"}, "date", "to_date(at)"),
        ({"type": "int", "from": "code % 10"}, "int", "code % 10"),
        ({"type": "string", "from": "concat(user, '(select now())')"}, "string", "concat(user, '(select now())')"),
    ],
)
def test_a_key_is_a_type_or_an_expression(write: Any, written: Any, kind: str, expression: str | None) -> None:
    write(keys={"country": "string", "Day": written})
    for config in (load_table_configs()["shop.orders"], configured_load({"table": "shop.orders"})):
        assert list(config.keys.items()) == [("country", "string"), ("day", kind)]
        assert config.key_expressions == ({} if expression is None else {"day": expression})
        assert config.job_request()["key_expressions"] == config.key_expressions


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("to_dat(ordered_at)", r"keys\.day is 'to_dat\(ordered_at\)', but Spark has no function to_dat; did you mean"),
        ("to_date(ordered_at", r"keys\.day: type 'to_date\(ordered_at' cannot be the type of a partition key"),
        ({"type": "date", "from": "to_date(at"}, r"keys\.day\.from is 'to_date\(at', whose brackets do not match"),
        ("coalesce(a, b)", r"keys\.day is 'coalesce\(a, b\)', which is no type, and the type of whose values is"),
        ("varchar(x)", r"keys\.day is 'varchar\(x\)', which is no type"),
        ({"type": "date", "form": "x"}, r"keys\.day has unknown field form; its fields are type, from"),
        ({}, r"keys\.day has neither a type nor an expression; write \{type: date, from: to_date\(ordered_at\)\}"),
        ({"type": "dat", "from": "to_date(x)"}, r"keys\.day: type 'dat' cannot be the type"),
        ({"type": "date", "from": "(SELECT max(d) FROM t)"}, r"keys\.day\.from is .*, which has a subquery"),
        (
            {"type": "date", "from": "to_date(now())"},
            r"keys\.day\.from is .*, but the function now differs from run to run",
        ),
        ({"type": "date", "from": "current_date"}, r"keys\.day\.from is 'current_date', but the function current_date"),
        ("concat(shop, session_user())", r"keys\.day is .*, but the function session_user differs"),
        ({"type": "string", "from": "concat(shop, user())"}, r"keys\.day\.from is .*, but the function user differs"),
        ({"type": "int", "from": "int(rand() * 3)"}, r"keys\.day\.from is .*, but the function rand differs"),
        (
            {"type": "bigint", "from": "unix_timestamp( )"},
            r"keys\.day\.from .*, but the function unix_timestamp",
        ),
        ({"type": "date", "from": ["x"]}, r"keys\.day\.from is \['x'\], expected a SQL expression"),
    ],
)
def test_a_wrong_key_is_named(write: Any, written: Any, message: str) -> None:
    write(keys={"country": "string", "day": written})
    with pytest.raises(InvalidConfigurationError, match=rf"table Shop\.Orders: {message}"):
        load_table_configs()


def test_a_form_has_keys_with_expressions(write: Any) -> None:
    write()
    form = {"table": "web.clicks", "source": "/clicks", "keys": ["site lower(host)", "hr int from hour(at)"]}
    config = configured_load(form)
    assert list(config.keys.items()) == [("site", "string"), ("hr", "int")]
    assert config.key_expressions == {"site": "lower(host)", "hr": "hour(at)"}


FROZEN = {"columns": "freeze", "types": "freeze"}


@pytest.mark.parametrize(
    ("contract", "expected"),
    [
        (None, FROZEN),
        ("evolve", {"columns": "evolve", "types": "evolve"}),
        ({"types": "discard_row"}, {"columns": "freeze", "types": "discard_row"}),
    ],
)
def test_a_contract_is_one_word_or_one_for_columns_and_types(write: Any, contract: Any, expected: Any) -> None:
    write(contract=contract)
    assert load_table_configs()["shop.orders"].contract == expected
    run = configured_load({"table": "shop.orders", "contract_columns": "discard_value"})
    assert run.job_request()["contract"] == {**expected, "columns": "discard_value"}


@pytest.mark.parametrize(
    ("contract", "message"),
    [
        ("drop", "contract is 'drop', expected one of evolve, freeze, discard_row, discard_value"),
        ({"columns": "add"}, r"contract\.columns is 'add', expected one of evolve"),
        ({"data_type": "freeze"}, "contract has unknown field data_type; its fields are columns and types"),
        (["freeze"], r"contract is \['freeze'\], expected one of"),
        (False, "contract is False, expected one of"),
    ],
)
def test_a_wrong_contract_is_named(write: Any, contract: Any, message: str) -> None:
    write(contract=contract)
    with pytest.raises(InvalidConfigurationError, match=rf"table Shop\.Orders: {message}"):
        load_table_configs()


def test_a_run_overrides_single_settings_of_spark(write: Any) -> None:
    write(spark={"spark.cores.max": 2, "spark.jars": "/x.jar"}, connection="night")
    run = configured_load({"table": "shop.orders", "spark_conf": {"spark.cores.max": 8}})
    assert (run.spark, run.connection) == ({"spark.cores.max": "8", "spark.jars": "/x.jar"}, "night")
    with pytest.raises(WrongFieldError, match=r"a run cannot set spark\.jars"):
        configured_load({"table": "shop.orders", "spark_conf": {"spark.jars": "/y.jar"}})


def test_variables_of_the_environment_are_filled_in(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write(source="${RAW}/orders")
    monkeypatch.setenv("RAW", "/landing")
    assert load_table_configs()["shop.orders"].source == "/landing/orders"
    monkeypatch.delenv("RAW")
    with pytest.raises(InvalidConfigurationError, match="needs the environment variable RAW"):
        load_table_configs()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": ""}, "source is missing"),
        ({"sorce": "x"}, "unknown field sorce"),
        ({"format": "xml"}, "format is 'xml', expected one of parquet, orc, avro, csv"),
        ({"source_format": "xls"}, "source_format is 'xls'"),
        ({"invalid_partitions": "drop"}, "invalid_partitions is 'drop'"),
        ({"bad_files": "drop"}, "bad_files is 'drop', expected one of fail, skip"),
        ({"null_keys": True}, "null_keys is True, expected one of refuse, allow"),
        ({"mode": "upsert"}, "mode is 'upsert', expected one of new, append, replace, merge"),
        ({"required": "id"}, r"required is 'id', expected a list of columns"),
        ({"keys": ["day"]}, r"keys is \['day'\], expected a mapping"),
        ({"keys": {"day": "array<int>"}}, "type 'array<int>' cannot be the type of a partition key"),
        ({"indexes": {"i": "day"}}, "indexes is"),
        ({"indexes": {"i": ["dya"]}}, "index i has 'dya', not a partition key; the keys are country, day"),
        ({"indexes": {"i": ["day", "Day"]}}, r"index i is on \['day', 'day'\]; name one or more keys, each once"),
        ({"indexes": {"i": []}}, "name one or more keys"),
        ({"quality": 5}, "quality is 5, expected a mapping"),
        ({"quality": ["agree"]}, "expected a mapping"),
        ({"quality": {"on_failure": "panic"}}, "on_failure is 'panic'"),
        ({"quality": {"agree": {"hour": "1"}}}, "hour, which is not a partition key"),
        ({"rebalance": True}, "rebalance is True, expected a mapping"),
        ({"rebalance": {"applied": True}}, "unknown rebalance field applied"),
        ({"rebalance": {"applied": 1, True: 2}}, "unknown rebalance field True, applied"),
        ({"quality": {"agree": {2024: "year(d)"}}}, "2024, which is not a partition key"),
        ({"source": "s3://b/\ud800"}, "source is .* not valid Unicode"),
        ({"source": "/raw/\0"}, r"source has the character '\\x00'"),
        ({"source": "", "rebalance": {}}, "source is missing"),
        ({"spark": {"executor.memory": "4g"}}, "spark: 'executor.memory' is no setting of Spark"),
        ({"spark": {"spark.ssl.keyPassword": "p"}}, "the name of a secret"),
        ({"connection": "a b"}, "connection is 'a b'"),
        ({"connection": ["a"]}, "connection is"),
    ],
)
def test_wrong_entry_is_named_with_its_field(write: Any, changes: dict[str, Any], said: str) -> None:
    write(**changes)
    with pytest.raises(InvalidConfigurationError, match=said) as refused:
        load_table_configs()
    assert "table Shop.Orders" in str(refused.value)


def test_entry_may_only_say_when_partitions_are_badly_cut(write: Any) -> None:
    write(source="", rebalance={"apply": True, "split_factor": 3})
    assert load_sources() == {}
    assert rebalance_rules("shop.orders") == RebalanceRules(apply=True, split_factor=3.0)
    assert rebalance_rules("shop.others") == RebalanceRules()
    write()
    assert list(load_sources()) == ["shop.orders"]
    write(source="", rebalance={"apply": True})
    with pytest.raises(InvalidConfigurationError, match="give its source"):
        configured_load({"table": "shop.orders"})


@pytest.mark.parametrize(
    ("text", "said"), [("tables: [", "is not YAML"), ("[]", "needs one mapping"), ("tables: [a]", "needs one mapping")]
)
def test_wrong_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(text)
    with pytest.raises(InvalidConfigurationError, match=said):
        load_table_configs(path)
    with pytest.raises(InvalidConfigurationError, match="cannot be read"):
        load_table_configs(tmp_path / "none.yaml")


def test_form_wins_over_the_entry(write: Any) -> None:
    write(invalid_partitions="skip")
    config = configured_load({"table": "shop.orders", "source": "/elsewhere", "dry_run": True})
    assert (config.source, config.invalid_partitions, list(config.keys)) == ("/elsewhere", "skip", ["country", "day"])


def test_a_form_does_not_read_environment_variables(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "planted")
    monkeypatch.setenv("ROOT", "${PLANTED}")
    write(source="${ROOT}/orders")
    assert configured_load({"table": "shop.orders"}).source == "${PLANTED}/orders"
    for source in ("${PLANTED}", "/data/${PLANTED}/x"):
        assert configured_load({"table": "shop.orders", "source": source}).source == source


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"source_options": {"sep": ";"}}, "source_options: the form has no such field"),
        ({"quality": {}}, "quality: the form has no such field"),
        ({"columns": {}}, "columns: the form has no such field"),
        ({"indexes": {}}, "indexes: the form has no such field"),
        ({"format": "orc"}, "format: the form has no such field"),
        ({"schedule": "@daily"}, "schedule: the form has no such field"),
        ({"rebalance": {"apply": True}}, "rebalance: the form has no such field"),
        ({"keys": "day date"}, "keys: 'day date' is not a list of strings"),
        ({"keys": [5]}, "keys: 5 is not a valid UTF-8 string"),
        ({"source": ["/data"]}, "source: .* is not a valid UTF-8 string"),
        ({"source": "/data/\ud800"}, "source: .* is not a valid UTF-8 string"),
        ({"source_format": {}}, "source_format: {} is not a valid UTF-8 string"),
    ],
)
def test_a_form_changes_only_its_own_fields(write: Any, form: dict[str, Any], said: str) -> None:
    write()
    with pytest.raises(WrongFieldError, match=said):
        configured_load({"table": "shop.orders", **form})


@pytest.mark.parametrize("keys", [["site varchar(9)", "day date"], ["site: varchar(9)", "day :date"]])
def test_the_keys_of_a_form_are_written_as_in_sql_or_as_in_yaml(keys: list[str]) -> None:
    config = configured_load({"table": "web.clicks", "source": "/clicks", "keys": keys})
    assert dict(config.keys) == {"site": "varchar(9)", "day": "date"}


def test_form_alone_describes_a_new_table(write: Any) -> None:
    write()
    config = configured_load({"table": "web.clicks", "source": "/clicks", "keys": ["site varchar(9)", "day date"]})
    assert list(config.keys.items()) == [("site", "varchar(9)"), ("day", "date")]
    with pytest.raises(InvalidConfigurationError, match=r"web\.clicks is not in .*; give its source"):
        configured_load({"table": "web.clicks"})
    with pytest.raises(InvalidConfigurationError, match="key 'day' has no type"):
        configured_load({"table": "web.clicks", "source": "/clicks", "keys": ["day"]})


def test_request_of_a_job_survives_its_command_line(write: Any) -> None:
    write(columns={"amount": "double", "at": "timestamp"})
    request = configured_load({"table": "shop.orders"}).job_request()
    job = ValidateSourceJob(operation_id="op", step="validate_source", attempt=1, **request)
    assert ValidateSourceJob.from_json(job.to_json()) == job
    assert list(job.key_types) == ["country", "day"]


def table(name: str, *keys: str) -> Table:
    database, _, short = name.partition(".")
    return Table(database, short, (), tuple(Column(key, "int") for key in keys), FileFormat.PARQUET, "/")


EXISTING = [table("shop.orders", "country", "day"), table("shop.returns", "day"), table("shop.items")]


def test_a_wrong_entry_stops_no_other_table(write: Any, tmp_path: Path) -> None:
    path = tmp_path / "tables.yaml"
    rules = {"rebalance": {"apply": True}, "indexes": {"by_day": ["day"]}}
    path.write_text(yaml.safe_dump({"tables": {"shop.orders": {**ENTRY, **rules}, "shop.wrong": {"sorce": "/x"}}}))
    assert list(load_sources(path)) == ["shop.orders"]
    assert "/raw" in allowed_locations()
    assert configured_load({"table": "shop.orders"}).source == "/raw"
    assert rebalance_rules("shop.orders").apply
    assert wanted_indexes(EXISTING, ["shop.orders"]) == WantedIndexes({"shop.orders": {"by_day": ["day"]}})
    for ask in (configured_load, lambda form: rebalance_rules(form["table"])):
        with pytest.raises(InvalidConfigurationError, match=r"table shop\.wrong: unknown field sorce"):
            ask({"table": "shop.wrong", "source": "/x"})
    for tables in ([], ["shop.wrong", "shop.orders"]):
        found = wanted_indexes(EXISTING, tables)
        assert found.indexes == {"shop.orders": {"by_day": ["day"]}}
        assert "table shop.wrong: unknown field sorce" in found.problems["shop.wrong"]


WRONG_ENTRIES = {
    "fields of several types": "shop.wrong: {source: /x, on: failure, 1: 2, ~: 3, 2024-01-01: 4, sorce: x}",
    "rebalance fields of several types": "shop.wrong: {source: /x, rebalance: {on: 1, x: 2}}",
    "numbers as names": "shop.wrong: {source: /x, quality: {columns: {2024: {sum: 1}}, agree: {2024: 'year(d)'}}}",
    "impossible date": "shop.wrong: {source: /x, columns: {d: 2024-02-31}}",
    "impossible date as a field": "shop.wrong: {source: /x, 2024-02-31: 1}",
    "field twice": "shop.wrong: {source: /x, source: /y}",
    "deep field twice": "shop.wrong: {source: /x, quality: {on_failure: warn, agree: {}, on_failure: fail}}",
    "unknown tag": "shop.wrong: {source: !vault x}",
    "list as a field": "shop.wrong: {source: /x, [a]: 1}",
    "merged number": "shop.wrong: {<<: 5, source: /x}",
    "too many digits": f"shop.wrong: {{source: /x, schedule: {'9' * 5000}}}",
    "too many hexadecimal digits": f"shop.wrong: {{source: /x, schedule: 0x{'f' * 5000}}}",
    "too deep": f"shop.wrong: {{source: /x, quality: {'[' * 200}{']' * 200}}}",
    "unfinished values": "shop.wrong: {source: /x, keys: {a: {b: c}}, columns: {d: 2024-02-31}}",
}


@pytest.mark.parametrize("entry", WRONG_ENTRIES.values(), ids=WRONG_ENTRIES)
def test_no_wrong_entry_stops_another_table(write: Any, tmp_path: Path, entry: str) -> None:
    first = "shop.orders: {source: /raw, keys: {day: date}}"
    (tmp_path / "tables.yaml").write_text(f"tables: {{{first}, {entry}, shop.returns: {{source: /other}}}}")
    listed = read_table_list()
    assert {name: config.source for name, config in listed.configs.items()} == {
        "shop.orders": "/raw",
        "shop.returns": "/other",
    }
    assert list(listed.wrong) == ["shop.wrong"]
    assert "/raw" in allowed_locations()


@pytest.mark.parametrize("second", ["shop.orders", "'shop.orders'", "SHOP.Orders"])
def test_two_entries_of_one_table_are_refused(write: Any, tmp_path: Path, second: str) -> None:
    entries = f"shop.orders: {{source: /raw}}, {second}: {{source: /x}}, shop.returns: {{source: /x}}"
    (tmp_path / "tables.yaml").write_text(f"tables: {{{entries}}}")
    listed = read_table_list()
    assert list(listed.configs) == ["shop.returns"]
    with pytest.raises(InvalidConfigurationError, match=r"the list has two entries of shop\.orders; remove one"):
        listed.get("shop.orders")


def test_entries_may_share_fields_and_replace_some(write: Any, tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text(
        "shared: &base {source: /raw, format: orc, schedule: '@daily'}\n"
        "tables:\n"
        "  shop.orders: &orders {<<: *base, format: csv}\n"
        "  shop.wrong: {<<: *orders, columns: {d: 2024-02-31}}\n"
        "  shop.returns: {<<: *orders, source: /other}\n"
    )
    listed = read_table_list()
    assert {name: (config.source, config.format) for name, config in listed.configs.items()} == {
        "shop.orders": ("/raw", "csv"),
        "shop.returns": ("/other", "csv"),
    }
    assert list(listed.wrong) == ["shop.wrong"]


def test_message_has_no_character_that_a_database_refuses(write: Any, tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text(r'tables: {"shop.\ud800": {}, "shop.a\0": {source: /x, "b\0\udfff": 1}}')
    wrong = read_table_list().wrong
    for text in (*wrong, *(str(entry.error) for entry in wrong.values())):
        text.encode()
        assert "\0" not in text


FAULTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "sorce": ({"sorce": "/y"}, {"unknown field sorce"}),
    "keys": ({"keys": {"country": "text", "day": "int"}}, {"keys.country: type 'text'"}),
    "columns": ({"columns": {"a": "blob", "b": "int", "c": "char(0)"}}, {"columns.a: ", "columns.c: "}),
    "indexes": ({"indexes": {"i": ["dya"], "j": []}}, {"index i has 'dya'", "index j is on []"}),
    "schedule": ({"schedule": "soon"}, {"schedule is 'soon'"}),
    "format": ({"format": "xml"}, {"format is 'xml'"}),
    "quality": (
        {"quality": {"agree": {"hour": "1", "day": "yer(d"}}},
        {"quality.agree names hour", "quality.agree.day is 'yer(d'"},
    ),
    "rebalance": ({"rebalance": {"apply": 1, "x": 1}}, {"unknown rebalance field x", "rebalance.apply is 1"}),
    "required": ({"required": "id"}, {"required is 'id'"}),
    "spark": ({"spark": 5}, {"spark"}),
    "connection": ({"connection": "a b"}, {"connection is 'a b'"}),
    "source": ({"source": "${CALVE_NO_SUCH}"}, {"source ${CALVE_NO_SUCH} needs"}),
}


@given(chosen=st.sets(st.sampled_from(sorted(FAULTS)), min_size=1))
def test_all_problems_of_an_entry_are_named_at_once(tmp_path_factory: pytest.TempPathFactory, chosen: set[str]) -> None:
    path = tmp_path_factory.mktemp("list") / "tables.yaml"
    faults = [FAULTS[name] for name in sorted(chosen)]
    entry = dict(ENTRY)
    for fields, _ in faults:
        entry |= fields
    path.write_text(yaml.safe_dump({"tables": {"shop.orders": entry}}, sort_keys=False))
    error = read_table_list(path).wrong["shop.orders"].error
    expected = {start for _, starts in faults for start in starts}
    said = [problem.removeprefix(f"{path}, table shop.orders: ") for problem in error.problems]
    assert {start for start in expected if any(problem.startswith(start) for problem in said)} == expected
    assert len(said) == len(expected)
    assert str(error).splitlines() == list(error.problems)


def test_the_problems_of_both_entries_of_a_table_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tables.yaml"
    path.write_text("tables: {shop.a: {source: /x, format: xml}, SHOP.a: {source: /x, mode: x}}")
    assert [problem.partition(": ")[2] for problem in read_table_list(path).wrong["shop.a"].error.problems] == [
        "format is 'xml', expected one of parquet, orc, avro, csv, iceberg",
        "the list has two entries of shop.a; remove one",
        "mode is 'x', expected one of new, append, replace, merge",
    ]


def test_fields_that_need_each_other_are_read_together(write: Any) -> None:
    write(rebalance={"maximum_files": 6, "split_files": 2.5}, schedule="soon", indexes={"i": ["day"]})
    with pytest.raises(InvalidConfigurationError) as refused:
        load_table_configs()
    assert [problem.partition(": ")[2][:18] for problem in refused.value.problems] == ["schedule is 'soon'"]
