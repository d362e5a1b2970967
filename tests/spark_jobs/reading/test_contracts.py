"""Schema contracts: new columns and unfit values evolve the table, are refused, or are left out and counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import ConflictError, SourceFileError, UnsupportedChangeError
from tests.support.effort import effort

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
in_formats = pytest.mark.parametrize("table_format", ["parquet", "orc", "csv", "iceberg"])

TABLE = "shop.orders"
CSV = {"source_format": "csv", "source_options": {"header": "true"}}
JSON = {"source_format": "json", "source_options": {}}
PARQUET = {"source_format": "parquet", "source_options": {}}


def rows_of(spark: SparkSession, catalog: Catalog) -> list[tuple[Any, ...]]:
    from spark_jobs.reading.tables import read_table

    names = [column.name for column in catalog.get_table(TABLE).columns]
    rows = read_table(spark, TABLE, catalog=catalog).select(*names).collect()
    return sorted((tuple(row) for row in rows), key=lambda row: (row[0] is None, row[0]))


def columns_of(catalog: Catalog) -> dict[str, str]:
    return {column.name: column.type for column in catalog.get_table(TABLE).columns}


@pytest.fixture
def loader(make_loader: Callable[..., Any]) -> Any:
    return make_loader(keys={"day": "int"})


@pytest.fixture
def make_table(catalog: Catalog) -> Callable[..., None]:
    def make(table_format: str = "parquet", **columns: str) -> None:
        catalog.create_database("shop", if_not_exists=True)
        columns = columns or {"id": "int", "amount": "float"}
        catalog.create_table(TABLE, columns=list(columns.items()), partition_keys=[("day", "int")], format=table_format)

    return make


@pytest.mark.long
@in_formats
def test_columns_and_types_evolve_in_the_commit(
    loader: Any,
    spark: SparkSession,
    catalog: Catalog,
    tmp_path: Path,
    make_table: Callable[..., None],
    table_format: str,
) -> None:
    make_table(table_format)
    (tmp_path / "a.csv").write_text("id,amount,day\n1,1.5,1\n")
    loader.load(tmp_path / "a.csv", **CSV)
    (tmp_path / "b.csv").write_text("id,note,amount,day\n3000000000,x,1e300,1\n3,,2,2\n")
    (tmp_path / "c.csv").write_text("id,total,day\n4,7,2\n")
    evolving = {**CSV, "contract": {"columns": "evolve", "types": "evolve"}, "mode": "append"}
    source = tmp_path / "[bc].csv"
    report = loader.validate("dry", source, **evolving, dry_run=True)
    assert report["evolution"] == {
        "added": [{"name": "note", "type": "string", "id": 4}, {"name": "total", "type": "bigint", "id": 5}],
        "widened": [{"name": "id", "from": "int", "to": "bigint"}, {"name": "amount", "from": "float", "to": "double"}],
    }
    operation = loader.new_operation()
    loader.validate(operation, source, **evolving)
    written = loader.write(operation, **evolving)
    assert columns_of(catalog) == {"id": "int", "amount": "float"}
    assert rows_of(spark, catalog) == [(1, 1.5)]
    loader.register(operation, written["staging"], mode="append", evolution=written["evolution"])
    assert columns_of(catalog) == {"id": "bigint", "amount": "double", "note": "string", "total": "bigint"}
    assert rows_of(spark, catalog) == [
        (1, 1.5, None, None),
        (3, 2.0, None, None),
        (4, None, None, 7),
        (3_000_000_000, 1e300, "x", None),
    ]


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("mode", ["new", "replace", "merge"])
@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_a_table_evolves_in_each_mode(
    loader: Any,
    spark: SparkSession,
    catalog: Catalog,
    tmp_path: Path,
    make_table: Callable[..., None],
    table_format: str,
    mode: str,
) -> None:
    make_table(table_format)
    (tmp_path / "a.csv").write_text("id,amount,day\n1,1.5,1\n2,2.5,1\n")
    loader.load(tmp_path / "a.csv", **CSV)
    day = 2 if mode == "new" else 1
    (tmp_path / "b.csv").write_text(f"id,note,day\n1,x,{day}\n")
    merge = {"merge": {"keys": ["id"]}} if mode == "merge" else {}
    loader.load(tmp_path / "b.csv", **CSV, contract={"columns": "evolve"}, mode=mode, **merge)
    kept = {"new": [(1, 1.5, None), (2, 2.5, None)], "merge": [(2, 2.5, None)]}.get(mode, [])
    assert sorted(rows_of(spark, catalog), key=str) == sorted([*kept, (1, None, "x")], key=str)


@pytest.mark.long
def test_a_load_that_is_quarantined_evolves_its_table(
    loader: Any, catalog: Catalog, tmp_path: Path, make_table: Callable[..., None]
) -> None:
    make_table("iceberg")
    (tmp_path / "a.csv").write_text("id,note,day\n1,x,1\n")
    operation, evolving = loader.new_operation(), {**CSV, "contract": {"columns": "evolve"}}
    loader.validate(operation, tmp_path / "a.csv", **evolving)
    written = loader.write(operation, **evolving)
    loader.register(operation, written["staging"], is_quarantined=True, evolution=written["evolution"])
    assert "note" in columns_of(catalog)


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_a_table_that_was_changed_meanwhile_does_not_evolve(
    loader: Any,
    spark: SparkSession,
    catalog: Catalog,
    tmp_path: Path,
    make_table: Callable[..., None],
    table_format: str,
) -> None:
    make_table(table_format)
    (tmp_path / "a.csv").write_text("id,note,day\n1,x,1\n")
    operation, evolving = loader.new_operation(), {**CSV, "contract": {"columns": "evolve"}}
    loader.validate(operation, tmp_path / "a.csv", **evolving)
    written = loader.write(operation, **evolving)
    catalog.alter_table(TABLE, add_columns=[("remark", "string")])
    with pytest.raises(ConflictError, match=r"columns of table shop\.orders were changed while a load was"):
        loader.register(operation, written["staging"], evolution=written["evolution"])
    assert rows_of(spark, catalog) == []
    catalog.operations.fail(operation, "TEST", "the load failed")
    loader.load(tmp_path / "a.csv", **evolving)
    assert rows_of(spark, catalog) == [(1, None, None, "x")]


@pytest.mark.long
@on_sqlite
@pytest.mark.usefixtures("names_of_earlier_versions")
@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_a_former_name_of_a_column_is_no_new_column(
    loader: Any, catalog: Catalog, tmp_path: Path, make_table: Callable[..., None], table_format: str
) -> None:
    make_table(table_format)
    (tmp_path / "a.csv").write_text("id,amount,day\n1,1.5,1\n")
    loader.load(tmp_path / "a.csv", **CSV)
    catalog.alter_table(TABLE, change_columns={"amount": ("total", "float")})
    (tmp_path / "b.csv").write_text("id,amount,day\n2,2.5,1\n")
    evolving = {**CSV, "contract": {"columns": "evolve"}, "mode": "append"}
    with pytest.raises(SourceFileError, match=r"column amount, which is a former name of column total"):
        loader.load(tmp_path / "b.csv", **evolving)
    assert columns_of(catalog) == {"id": "int", "total": "float"}


@pytest.mark.long
@on_sqlite
@in_formats
@pytest.mark.parametrize("contract", [{}, {"columns": "evolve"}])
def test_a_column_that_is_dropped_and_added_again_is_another(
    loader: Any,
    spark: SparkSession,
    catalog: Catalog,
    tmp_path: Path,
    make_table: Callable[..., None],
    table_format: str,
    contract: dict[str, str],
) -> None:
    make_table(table_format, id="int", note="string", amount="int")
    (tmp_path / "a.csv").write_text("id,note,amount,day\n1,old,10,1\n")
    loader.load(tmp_path / "a.csv", **CSV)
    catalog.alter_table(TABLE, drop_columns=["note"])
    assert rows_of(spark, catalog) == [(1, 10)]
    (tmp_path / "b.csv").write_text("note,id,amount,day\nnew,2,20,1\n")
    if table_format in ("parquet", "orc"):
        # Engines would read the old values.
        with pytest.raises(UnsupportedChangeError, match="column note cannot be added again"):
            loader.load(tmp_path / "b.csv", **CSV, contract={"columns": "evolve"}, mode="append")
        return
    if not contract:
        catalog.alter_table(TABLE, add_columns=[("note", "string")])
    loader.load(tmp_path / "b.csv", **CSV, contract=contract, mode="append")
    assert rows_of(spark, catalog) == [(1, 10, None), (2, 20, "new")]


@pytest.mark.long
@on_sqlite
def test_types_are_widened_as_far_as_values_need(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, make_table: Callable[..., None]
) -> None:
    make_table(id="tinyint", price="decimal(4,2)", name="varchar(3)", total="int", rate="float")
    (tmp_path / "a.csv").write_text(
        "id,price,name,total,rate,day\n1,1.50,abc,2147483647,1.5,1\n300,12345.60,abcdef,1,2.5,1\n"
    )
    loader.load(tmp_path / "a.csv", **CSV, contract={"types": "evolve"})
    assert columns_of(catalog) == {
        "id": "smallint",
        "price": "decimal(7,2)",
        "name": "varchar(6)",
        "total": "int",
        "rate": "float",
    }
    assert rows_of(spark, catalog) == [
        (1, Decimal("1.50"), "abc", 2147483647, 1.5),
        (300, Decimal("12345.60"), "abcdef", 1, 2.5),
    ]
    frame = spark.createDataFrame([(7, 0.1, 1)], "id bigint, rate double, day int")
    frame.coalesce(1).write.parquet(str(tmp_path / "b"))
    loader.load(tmp_path / "b", **PARQUET, contract={"types": "evolve"}, mode="append")
    assert (columns_of(catalog)["id"], columns_of(catalog)["rate"]) == ("smallint", "double")
    (tmp_path / "c.csv").write_text("id,price,day\n1,1.505,1\n99999999999999999999,1,1\n")
    with pytest.raises(SourceFileError, match=r"c\.csv, line 2: column price: '1\.505'.*line 3: column id"):
        loader.load(tmp_path / "c.csv", **CSV, contract={"types": "evolve"}, mode="append")


@pytest.mark.long
@on_sqlite
def test_only_good_files_evolve_a_table(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, make_table: Callable[..., None]
) -> None:
    make_table()
    (tmp_path / "a.csv").write_text("id,good,day\n1,x,1\n")
    (tmp_path / "b.csv").write_text("id,bad,day\nmany,x,1\n")
    evolving = {**CSV, "contract": {"columns": "evolve"}, "bad_files": "skip"}
    report = loader.validate("dry", tmp_path / "*.csv", **evolving, dry_run=True)
    assert [(row["line"], row["value"]) for row in report["set_aside"]["problems"]] == [(2, "many")]
    loader.load(tmp_path / "*.csv", **evolving)
    assert columns_of(catalog) == {"id": "int", "amount": "float", "good": "string"}
    assert rows_of(spark, catalog) == [(1, None, "x")]


SOURCES: dict[str, tuple[dict[str, Any], str]] = {
    "csv": (CSV, "id,amount,note,day\n1,1.5,,1\n2,x,,1\n3,3.5,new,2\n4,y,new,3\n"),
    "json": (
        JSON,
        '{"id": 1, "amount": 1.5, "day": 1}\n{"id": 2, "amount": "x", "day": 1}\n'
        '{"id": 3, "amount": 3.5, "note": "new", "day": 2}\n{"id": 4, "amount": "y", "note": "new", "day": 3}\n',
    ),
}


@on_sqlite
@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
@pytest.mark.parametrize("bad_files", ["fail", "skip"])
@pytest.mark.parametrize("source_format", SOURCES)
def test_discards_are_counted_and_named(
    loader: Any,
    spark: SparkSession,
    catalog: Catalog,
    tmp_path: Path,
    make_table: Callable[..., None],
    table_format: str,
    bad_files: str,
    source_format: str,
) -> None:
    make_table(table_format)
    request, text = SOURCES[source_format]
    path, first = tmp_path / f"a.{source_format}", 2 if source_format == "csv" else 1
    path.write_text(text)
    contract = {"columns": "discard_value", "types": "discard_row"}
    operation, changes = loader.new_operation(), {**request, "contract": contract, "bad_files": bad_files}
    report = loader.validate(operation, path, **changes)
    assert (report["rows"], report["partitions"]) == (2, 2)
    discarded = report["discarded"]
    assert (discarded["rows"], discarded["values"], discarded["files"]) == (2, 1, 1)
    assert discarded["of_files"] == [{"file": str(path), "rows": 2, "values": 1}]
    examples = [(e["line"], e["column"], e["value"], e["type"], e["discarded"]) for e in discarded["examples"]]
    assert examples == [
        (first + 1, "amount", "x", "float", "row"),
        (first + 2, "note", "new", "string", "value"),
        (first + 3, "amount", "y", "float", "row"),
    ]
    loader.register(operation, loader.write(operation, **changes)["staging"])
    assert rows_of(spark, catalog) == [(1, 1.5), (3, 3.5)]
    assert len(list(catalog.get_partitions(TABLE))) == 2


@pytest.mark.long
@on_sqlite
def test_values_and_rows_are_discarded_apart(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, make_table: Callable[..., None]
) -> None:
    make_table()
    (tmp_path / "a.csv").write_text(SOURCES["csv"][1])
    loader.load(tmp_path / "a.csv", **CSV, contract={"columns": "discard_row", "types": "discard_value"})
    assert rows_of(spark, catalog) == [(1, 1.5), (2, None)]
    frame = spark.createDataFrame([(5, 2**40, "x", 1), (6, 6, None, 1)], "amount int, id bigint, note string, day int")
    frame.coalesce(1).write.parquet(str(tmp_path / "b"))
    contract = {"columns": "discard_value", "types": "discard_value"}
    loader.load(tmp_path / "b", **PARQUET, contract=contract, mode="append")
    assert rows_of(spark, catalog) == [(1, 1.5), (2, None), (6, 6.0), (None, 5.0)]


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("contract", [{}, {"columns": "discard_row", "types": "discard_row"}])
def test_lines_and_keys_are_never_discarded(
    loader: Any, tmp_path: Path, make_table: Callable[..., None], contract: dict[str, str]
) -> None:
    make_table()
    (tmp_path / "a.csv").write_text("id,day\n1,1\n1,2,3\n1,\n")
    with pytest.raises(
        SourceFileError, match=r"line 3: 1,2,3 \(it has 3 fields, .*; .*line 4: partition key day is null"
    ):
        loader.load(tmp_path / "a.csv", **CSV, contract=contract)


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("contract", [{}, {"types": "discard_value"}])
def test_a_required_column_has_no_nulls(
    loader: Any, tmp_path: Path, make_table: Callable[..., None], contract: dict[str, str]
) -> None:
    make_table()
    required = {**CSV, "required": ["id"], "contract": contract}
    (tmp_path / "a.csv").write_text("id,amount,day\n1,,1\n,1.5,1\n")
    with pytest.raises(SourceFileError, match=r"a\.csv, line 3: column id is null, which `required` of the table"):
        loader.load(tmp_path / "a.csv", **required)
    (tmp_path / "b.csv").write_text("id,amount,day\nmany,1.5,1\n")
    with pytest.raises(SourceFileError, match=r"b\.csv, line 2: column id: 'many' is no int"):
        loader.load(tmp_path / "b.csv", **required)
    (tmp_path / "c.json").write_text(json.dumps({"amount": 1.5, "day": 1}) + "\n" + json.dumps({"id": 1, "day": 1}))
    with pytest.raises(SourceFileError, match=r"c\.json, line 1: column id is null"):
        loader.load(tmp_path / "c.json", **{**required, **JSON})


@pytest.mark.long
@on_sqlite
@settings(max_examples=effort(4, 60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["1", "2147483648", "9223372036854775808", "x", ""]),
            st.sampled_from(["1.5", "x", ""]),
            st.sampled_from(["", "new"]),
        ),
        min_size=1,
        max_size=8,
    ),
    columns=st.sampled_from(["discard_row", "discard_value"]),
    types=st.sampled_from(["discard_row", "discard_value"]),
)
def test_the_counts_explain_each_row_and_value(
    make_loader: Callable[..., Any],
    catalog: Catalog,
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str]],
    columns: str,
    types: str,
) -> None:
    if not catalog.list_tables():
        catalog.create_database("shop")
        catalog.create_table(TABLE, columns=[("id", "int"), ("amount", "float")], partition_keys=[("day", "int")])
    unfit = [[value for value in row[:2] if value in ("x", "2147483648", "9223372036854775808")] for row in rows]
    new = [row[2] != "" for row in rows]
    gone = [
        (columns == "discard_row" and is_new) or (types == "discard_row" and bool(bad))
        for bad, is_new in zip(unfit, new, strict=True)
    ]
    values = sum(
        (len(bad) if types == "discard_value" else 0) + (is_new if columns == "discard_value" else 0)
        for bad, is_new, is_gone in zip(unfit, new, gone, strict=True)
        if not is_gone
    )
    path = tmp_path_factory.mktemp("raw") / "a.csv"
    path.write_text("id,amount,note,day\n" + "".join(f"{','.join(row)},1\n" for row in rows))
    loader, operation = make_loader(keys={"day": "int"}), f"dry-{path.parent.name}"
    contract = {"columns": columns, "types": types}
    report = loader.validate(operation, path, **CSV, contract=contract, dry_run=True)
    assert report["rows"] == len(rows) - sum(gone)
    assert (report["discarded"]["rows"], report["discarded"]["values"]) == (sum(gone), values)
