"""Statements on the catalog: effects, results and error positions; without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog, IndexState, NewPartition, Table
from catalog.errors import CatalogError, EngineUnavailableError
from catalog.model import TableKind
from catalog.statements.results import Cell, as_text
from catalog.statements.session import Session
from tests.support.written_files import own_name


def no_engine(_catalog: Catalog) -> Any:
    raise EngineUnavailableError("a statement on the catalog alone has asked for the engine")


@pytest.fixture
def session(catalog: Catalog) -> Iterator[Session]:
    with Session(catalog, database="demo", start=no_engine) as opened:
        yield opened


def rows(session: Session, text: str) -> list[list[Cell]]:
    return [list(row) for row in session.execute(text).rows]


def lines(session: Session, text: str) -> list[str]:
    return as_text(session.execute(text))


def run(session: Session, *statements: str) -> None:
    for text in statements:
        session.execute(text)


def refused(session: Session, text: str) -> tuple[str, str | None]:
    """Return the error's class, and the text at its position."""
    with pytest.raises(CatalogError) as caught:
        session.execute(text)
    place = caught.value.position
    return type(caught.value).__name__, None if place is None else text[place:]


AREA = """CREATE TABLE area (a int) PARTITIONED BY (country string) STORED BY 'carbondata'
TBLPROPERTIES ('PARTITION_TYPE'='LIST', 'LIST_INFO'='China, US, UK, (Canada, Good, NotGood), (Japan, Korea), Mars')"""
LOGS = """CREATE TABLE logs (a int) PARTITIONED BY (logdate date) STORED BY 'carbondata'
TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2014/01/01, 2015/01/01, 2016/01/01')"""
VINS = """CREATE TABLE vins (a int) PARTITIONED BY (vin string) STORED BY 'org.apache.carbondata.format'
TBLPROPERTIES ('partition_type'='hash', 'num_partitions'='5', 'SORT_COLUMNS'='a, vin', 'Owner'='me')"""
SALES = """CREATE TABLE sales (amount decimal(7,2)) PARTITIONED BY (region string, month int)
PARTITION INDEX by_month (month) STORED AS PARQUET"""


# --- databases and tables -------------------------------------------------------------------------------------


def test_databases_come_and_go(session: Session) -> None:
    run(session, "CREATE DATABASE shop COMMENT 'of things'", "CREATE DATABASE IF NOT EXISTS shop")
    assert rows(session, "SHOW DATABASES") == [["demo"], ["shop"]]
    assert ["Comment", "of things"] in rows(session, "DESCRIBE DATABASE shop")
    run(session, "USE shop", "CREATE TABLE t (a int)")
    assert rows(session, "SHOW TABLES") == [["shop", "t", "HIVE", None]]
    assert rows(session, "SHOW TABLES IN demo") == []
    assert refused(session, "CREATE DATABASE shop") == ("DatabaseAlreadyExistsError", "shop")
    assert refused(session, "DROP DATABASE shop") == ("DatabaseNotEmptyError", "shop")
    run(session, "DROP TABLE t", "DROP DATABASE shop", "DROP DATABASE IF EXISTS shop")
    assert refused(session, "DROP DATABASE shop") == ("DatabaseNotFoundError", "shop")
    assert refused(session, "USE shop") == ("DatabaseNotFoundError", "shop")
    assert refused(session, "SHOW TABLES IN shop") == ("DatabaseNotFoundError", "shop")


def test_the_default_database_is_there_when_it_is_needed(catalog: Catalog) -> None:
    with Session(catalog, start=no_engine) as session:
        assert rows(session, "SHOW TABLES") == []
        run(session, "CREATE TABLE t (a int)", "USE demo", "CREATE TABLE default.u (a int)")
        assert rows(session, "SHOW TABLES IN default") == [
            ["default", "t", "HIVE", None],
            ["default", "u", "HIVE", None],
        ]


def test_a_table_is_described_as_hive_does(session: Session) -> None:
    run(session, SALES.replace("month int", "month int COMMENT '1 to 12'"))
    assert rows(session, "DESCRIBE sales") == [
        ["amount", "decimal(7,2)", None],
        ["region", "string", None],
        ["month", "int", "1 to 12"],
        ["# Partition Information", None, None],
        ["# col_name", "data_type", "comment"],
        ["region", "string", None],
        ["month", "int", "1 to 12"],
    ]
    session.execute("ALTER TABLE sales ADD PARTITION (region='EU', month=1)")
    facts = {row[0]: row[1] for row in rows(session, "DESC FORMATTED demo.sales")}
    assert (facts["Type"], facts["Format"], facts["Partition Type"]) == ("MANAGED_TABLE", "PARQUET", "VALUE")
    assert (facts["Partitions"], facts["Rows"]) == ("1", "unknown")
    assert facts["Partition Indexes"] == "by_month (month) ACTIVE"


def test_a_table_with_a_scheme_is_described_with_it(session: Session) -> None:
    run(session, VINS)
    assert rows(session, "DESCRIBE vins")[:2] == [["a", "int", None], ["vin", "string", None]]
    facts = {row[0]: row[1] for row in rows(session, "DESCRIBE EXTENDED vins")}
    assert (facts["Partition Type"], facts["Partition Num"], facts["Sort Columns"]) == ("HASH", "5", "a, vin")
    assert (facts["Rows"], facts["Files"], facts["Table Properties"]) == ("0", "0", "[Owner=me]")


def test_tables_are_altered(session: Session, catalog: Catalog) -> None:
    run(
        session,
        SALES,
        "ALTER TABLE sales SET TBLPROPERTIES ('comment'='of all regions', 'x'='1', 'y'='2')",
        "ALTER TABLE sales UNSET TBLPROPERTIES ('x')",
        "ALTER TABLE sales UNSET TBLPROPERTIES IF EXISTS ('x')",
        "ALTER TABLE sales ADD COLUMNS (note string COMMENT 'kept')",
        "ALTER TABLE sales CHANGE note remark varchar(9)",
        "ALTER TABLE sales RENAME COLUMN amount TO total",
        "ALTER TABLE sales ADD COLUMNS (x int, y int, z int)",
        "ALTER TABLE sales DROP COLUMNS (x, Y)",
        "ALTER TABLE sales DROP COLUMN z",
        "ALTER TABLE sales RENAME TO turnover",
    )
    table = catalog.get_table("demo.turnover")
    assert (table.description, dict(table.properties)) == ("of all regions", {"y": "2"})
    assert [(each.name, each.type, each.comment) for each in table.columns] == [
        ("total", "decimal(7,2)", None),
        ("remark", "varchar(9)", "kept"),
    ]
    assert refused(session, "ALTER TABLE turnover UNSET TBLPROPERTIES ('x')") == (
        "PropertyNotFoundError",
        "'x')",
    )
    assert refused(session, "ALTER TABLE turnover CHANGE none b int") == ("InvalidTableError", "none b int")
    assert refused(session, "ALTER TABLE turnover DROP COLUMN region")[0] == "InvalidTableError"
    assert refused(session, "ALTER TABLE turnover CHANGE remark remark int")[0] == "UnsupportedChangeError"
    assert refused(session, "ALTER TABLE turnover RENAME TO shop.x")[0] == "InvalidTableError"
    assert refused(session, "ALTER TABLE sales RENAME TO x") == ("TableNotFoundError", "sales RENAME TO x")


def test_views_are_kept_as_they_were_written(session: Session, catalog: Catalog) -> None:
    query = "SELECT total /* ; */ FROM sales -- all"
    run(session, f"CREATE VIEW v (t COMMENT 'sum') COMMENT 'c' AS {query}", "CREATE VIEW IF NOT EXISTS v AS SELECT 1")
    view = catalog.get_table("demo.v")
    assert (view.kind, view.view_text, view.description) == (TableKind.VIEW, query, "c")
    assert refused(session, "CREATE VIEW v AS SELECT 1") == ("TableAlreadyExistsError", "v AS SELECT 1")
    assert refused(session, "DROP TABLE v") == ("NotATableError", "v")
    session.execute("CREATE OR REPLACE VIEW v AS SELECT 2")
    assert catalog.get_table("demo.v").view_text == "SELECT 2"
    assert rows(session, "SHOW CREATE TABLE v") == [["CREATE VIEW `demo`.`v`\nAS SELECT 2"]]
    facts = {row[0]: row[1] for row in rows(session, "DESCRIBE FORMATTED v")}
    assert (facts["Type"], facts["View Text"]) == ("VIRTUAL_VIEW", "SELECT 2")
    run(session, "CREATE TABLE t (a int)")
    assert refused(session, "DROP VIEW t") == ("InvalidTableError", "t")
    assert refused(session, "CREATE OR REPLACE VIEW t AS SELECT 2")[0] == "InvalidTableError"
    run(session, "DROP VIEW v", "DROP VIEW IF EXISTS v")


def test_tables_are_dropped(session: Session) -> None:
    run(session, "CREATE TABLE t (a int)", "CREATE TABLE IF NOT EXISTS t (b int)", "DROP TABLE t")
    run(session, "DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS no.t PURGE")
    assert refused(session, "DROP TABLE t PURGE") == ("TableNotFoundError", "t PURGE")


WRONG_TABLES = [
    (
        LOGS.replace("2015/01/01", "2013/01/01"),
        "BoundsNotAscendingError",
        "'2014/01/01, 2013/",
    ),
    (AREA.replace("Korea", "US"), "DuplicateListValueError", "'China, US"),
    (LOGS.replace("2015/01/01", "soon"), "SchemeValueError", "'2014/01/01, soon"),
    (VINS.replace("'5'", "'many'"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("'5'", "'0'"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("hash", "round"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("vin string", "vin binary"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("a, vin", "b"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("(vin string)", "(vin string, x int)"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("org.apache.carbondata.format", "parquet"), "InvalidTableError", "'parquet'"),
    (SALES.replace("PARQUET", "CSV TBLPROPERTIES ('PARTITION_TYPE'='HASH')"), "InvalidSchemeError", "'PARTITION"),
    (SALES.replace("PARQUET", "KUDU"), "InvalidTableError", "KUDU"),
    (SALES.replace("month int", "month binary"), "InvalidKeyTypeError", "region string"),
    (SALES.replace("(month)", "(nothing)"), "InvalidIndexError", "by_month"),
    (SALES.replace("sales (", "none.sales ("), "DatabaseNotFoundError", "none.sales"),
]


def check_refused(session: Session, text: str, error: str, place: str | None) -> None:
    """Check that a statement is refused with an error of this class at the position of this text."""
    name, found = refused(session, text)
    assert name == error, text
    assert found is None if place is None else found is not None and found.startswith(place), (text, found)


def test_a_wrong_table_is_refused_at_its_place(session: Session) -> None:
    for text, error, place in WRONG_TABLES:
        check_refused(session, text, error, place)
    assert rows(session, "SHOW TABLES") == []


# --- SHOW CREATE TABLE ----------------------------------------------------------------------------------------


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
NAMES = st.lists(
    st.sampled_from(["a", "b", "select", "comment", "größe", "x y", "1st", "date"]), min_size=1, max_size=4, unique=True
)
TYPES = st.sampled_from(
    (
        *("int", "bigint", "string", "varchar(7)", "char(3)", "decimal(9,2)", "double", "boolean", "date", "timestamp"),
        *("binary", "array<int>", "map<string,array<double>>", "struct<a:int,`b c`:string>"),
    )
)
SCHEMES = st.sampled_from(
    [
        ("string", {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"}),
        ("bigint", {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "-5, 10, 20"}),
        ("timestamp", {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "2014/01/01, 2015-01-01 10:00:00"}),
        ("string", {"PARTITION_TYPE": "LIST", "LIST_INFO": "aaaa, (bb, 'it''s, odd'), dddd"}),
        ("date", {"PARTITION_TYPE": "RANGE_INTERVAL", "RANGE_INFO": "2017-01-01", "INTERVAL": "1 month"}),
    ]
)


@st.composite
def tables(draw: st.DrawFn) -> str:
    """A statement that creates a table, with all kinds of clauses."""

    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    names = draw(NAMES)
    columns = [
        f"`{name}` {draw(TYPES)}{draw(st.just('') | TEXTS.map(lambda text: ' COMMENT ' + quoted(text)))}"
        for name in names
    ]
    properties = draw(st.dictionaries(TEXTS.map(str.lower).map(lambda text: "p" + text), TEXTS, max_size=2))
    clauses = [f"COMMENT {quoted(draw(TEXTS))}"] if draw(st.booleans()) else []
    if draw(st.booleans()):
        key_type, scheme = draw(SCHEMES)
        properties = {**properties, **scheme}
        clauses += [f"PARTITIONED BY (`the key` {key_type})", "STORED BY 'carbondata'"]
    else:
        if draw(st.booleans()):
            clauses += ["PARTITIONED BY (`k 1` string, k2 date) PARTITION INDEX i (k2), `j j` (k2, `k 1`)"]
        if draw(st.booleans()):
            clauses += [f"CLUSTERED BY (`{names[0]}`) INTO {draw(st.integers(1, 99))} BUCKETS"]
        clauses += [f"STORED AS {draw(st.sampled_from(['PARQUET', 'ORC', 'AVRO', 'CSV', 'TEXTFILE', 'RCFILE']))}"]
    external = draw(st.sampled_from(["", "EXTERNAL "]))
    if external or draw(st.booleans()):
        clauses += ["LOCATION '/some/where'"]
    if properties:
        clauses += [f"TBLPROPERTIES ({', '.join(f'{quoted(a)}={quoted(b)}' for a, b in properties.items())})"]
    return f"CREATE {external}TABLE t ({', '.join(columns)}) {' '.join(clauses)}"


def definition(table: Table) -> dict[str, Any]:
    changing = ("id", "version", "live_location", "published_location")
    return {name: value for name, value in vars(table).items() if name not in changing and name[0] != "_"}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_show_create_table_creates_an_equal_table(session: Session, catalog: Catalog, text: str) -> None:
    run(session, "DROP TABLE IF EXISTS t", text)
    before, indexes = catalog.get_table("demo.t"), rows(session, "SHOW PARTITION INDEXES ON t")
    [[shown]] = rows(session, "SHOW CREATE TABLE t")
    assert isinstance(shown, str)
    run(session, "DROP TABLE t", shown)
    assert definition(catalog.get_table("demo.t")) == definition(before)
    assert rows(session, "SHOW PARTITION INDEXES ON t") == indexes
    assert rows(session, "SHOW CREATE TABLE t") == [[shown]]


# --- partition schemes ----------------------------------------------------------------------------------------


def test_partitions_are_shown_as_the_guide_shows_them(session: Session) -> None:
    run(session, AREA, LOGS, VINS)
    assert lines(session, "SHOW PARTITIONS vins") == ["vin = HASH_NUMBER(5)"]
    assert lines(session, "SHOW PARTITIONS logs") == [
        "0, logdate = DEFAULT",
        "1, logdate < 2014/01/01",
        "2, 2014/01/01 <= logdate < 2015/01/01",
        "3, 2015/01/01 <= logdate < 2016/01/01",
    ]
    assert lines(session, "SHOW PARTITIONS logs WHERE logdate < '2014-06-01'") == [
        "1, logdate < 2014/01/01",
        "2, 2014/01/01 <= logdate < 2015/01/01",
    ]
    answer = session.execute("SHOW PARTITIONS vins")
    assert answer.columns == ("partition", "row_count", "size_bytes", "file_count")
    assert list(answer.rows) == [["vin = HASH_NUMBER(5)", 0, 0, 0]]
    [one] = rows(session, "SHOW PARTITIONS vins WHERE vin = 'x'")
    assert str(one[0]).endswith("% 5 = " + str(one[0])[0])


def test_partitions_split_stand_where_the_old_one_stood(session: Session) -> None:
    run(session, AREA, "ALTER TABLE area SPLIT PARTITION (4) INTO ('Canada', 'Good', 'NotGood')")
    shown = lines(session, "SHOW PARTITIONS area")
    assert [line.split(",")[0] for line in shown] == ["0", "1", "2", "3", "7", "8", "9", "5", "6"]
    assert shown[4:7] == ["7, country = Canada", "8, country = Good", "9, country = NotGood"]


def test_partitions_of_an_empty_table_change_without_an_engine(session: Session) -> None:
    run(
        session,
        AREA,
        LOGS,
        VINS,
        "ALTER TABLE area ADD PARTITION ('(Venus, Pluto)', 'Moon')",
        "ALTER TABLE area MERGE PARTITION (1, 8)",
        "ALTER TABLE area DROP PARTITION (2, 3) WITH DATA",
        "ALTER TABLE logs ADD PARTITION ('2017/01/01')",
        "ALTER TABLE logs DROP PARTITION (2)",
        "ALTER TABLE vins SET PARTITION_NUM 7",
    )
    assert sorted(lines(session, "SHOW PARTITIONS area"))[1:] == [
        "4, country = Canada, Good, NotGood",
        "5, country = Japan, Korea",
        "6, country = Mars",
        "7, country = Venus, Pluto",
        "9, country = China, Moon",
    ]
    assert lines(session, "SHOW PARTITIONS logs")[2:] == [
        "3, 2014/01/01 <= logdate < 2016/01/01",
        "4, 2016/01/01 <= logdate < 2017/01/01",
    ]
    assert lines(session, "SHOW PARTITIONS vins") == ["vin = HASH_NUMBER(7)"]


WRONG_CHANGES = [
    ("logs ADD PARTITION ('2015/06/01')", "BoundsNotAscendingError", "'2015/06/01')"),
    ("logs ADD PARTITION ('2017/01/01', '2016/06/01')", "BoundsNotAscendingError", "'2017/01/01', '2016/06/01')"),
    ("logs ADD PARTITION ('soon')", "SchemeValueError", "'soon')"),
    ("area ADD PARTITION ('US')", "DuplicateListValueError", "'US')"),
    ("area ADD PARTITION ('(Sun, Sun)')", "DuplicateListValueError", "'(Sun, Sun)')"),
    ("logs SPLIT PARTITION (0) INTO ('2010/01/01', '2011/01/01')", "DefaultPartitionError", "0) INTO"),
    ("area SPLIT PARTITION (0) INTO ('a', 'b')", "DefaultPartitionError", "0) INTO"),
    ("area SPLIT PARTITION (44) INTO ('a', 'b')", "PartitionNotFoundError", "44) INTO"),
    ("area SPLIT PARTITION (4) INTO ('Canada', 'Good')", "ListGroupMismatchError", "'Canada', 'Good')"),
    ("logs SPLIT PARTITION (2) INTO ('2014/06/01', '2016/01/01')", "BoundOutsideRangeError", "'2014/06/01'"),
    ("logs SPLIT PARTITION (2) INTO ('2014/06/01', '2014/07/01')", "BoundOutsideRangeError", "'2014/06/01'"),
    ("logs DROP PARTITION (0)", "DefaultPartitionError", "0)"),
    ("logs DROP PARTITION (1, 9)", "PartitionNotFoundError", "1, 9)"),
    ("logs MERGE PARTITION (1, 3)", "PartitionsNotNeighboursError", "1, 3)"),
    ("area MERGE PARTITION (1, 0)", "DefaultPartitionError", "1, 0)"),
    ("vins ADD PARTITION ('x')", "UnsupportedChangeError", "'x')"),
    ("vins SPLIT PARTITION (1) INTO ('x', 'y')", "UnsupportedChangeError", "'x', 'y')"),
    ("vins DROP PARTITION (1)", "UnsupportedChangeError", "1)"),
    ("vins SET PARTITION_NUM 0", "InvalidSchemeError", "0"),
    ("logs SET PARTITION_NUM 3", "UnsupportedChangeError", "3"),
    ("sales ADD PARTITION ('x')", "InvalidSchemeError", "'x')"),
    ("none ADD PARTITION ('x')", "TableNotFoundError", "none ADD"),
    ("logs SET TBLPROPERTIES ('range_info'='2020/01/01')", "InvalidSchemeError", "'range_info'"),
    ("logs ADD PARTITION (logdate='2020/01/01')", "UnsupportedChangeError", None),
    ("logs DROP PARTITION (logdate='2020/01/01')", "UnsupportedChangeError", None),
]


def test_a_wrong_change_is_refused_at_its_place(session: Session) -> None:
    run(session, AREA, LOGS, VINS, SALES)
    before = [lines(session, f"SHOW PARTITIONS {table}") for table in ("area", "logs", "vins", "sales")]
    for change, error, place in WRONG_CHANGES:
        check_refused(session, f"ALTER TABLE {change}", error, place)
    assert [lines(session, f"SHOW PARTITIONS {table}") for table in ("area", "logs", "vins", "sales")] == before


def test_hash_refuses_add_by_naming_what_to_do(session: Session) -> None:
    run(session, VINS)
    with pytest.raises(CatalogError, match="SET PARTITION_NUM"):
        session.execute("ALTER TABLE vins ADD PARTITION ('x')")


def test_errors_in_a_filter_point_into_the_statement(session: Session) -> None:
    run(session, LOGS, SALES)
    for where, error, place in (
        ("nothing = 1", "UnknownColumnError", "nothing"),
        ("logdate = 'soon'", "LiteralTypeError", "'soon'"),
        ("logdate >", "ExpressionSyntaxError", ""),
    ):
        for begin in ("SHOW PARTITIONS logs WHERE", "EXPLAIN  PARTITIONS demo.logs /* c */ WHERE\n"):
            name, found = refused(session, f"{begin} {where}")
            assert name == error
            assert found is not None
            assert found.startswith(place)
    assert refused(session, "SHOW PARTITIONS sales WHERE month = 'x'") == ("LiteralTypeError", "'x'")


def test_explain_is_text_for_people_and_an_object_for_programs(session: Session) -> None:
    run(session, LOGS, SALES)
    answer = session.execute("EXPLAIN PARTITIONS logs WHERE logdate >= '2015-05-05'")
    assert answer.columns == ("plan",)
    [[plan]] = [list(row) for row in answer.rows]
    assert isinstance(plan, dict)
    assert plan["partitions_read"] == [0, 3]
    assert json.loads(json.dumps(plan)) == plan
    assert any("partitions read" in line for line in as_text(answer))
    [[plan]] = rows(session, "EXPLAIN PARTITIONS sales WHERE month = 1")
    assert isinstance(plan, dict)
    assert plan["index"] == "by_month"


# --- partitions of values -------------------------------------------------------------------------------------


def test_value_partitions_are_shown_in_the_order_of_their_values(session: Session, catalog: Catalog) -> None:
    run(
        session,
        SALES,
        "ALTER TABLE sales ADD PARTITION (region='b', month=10) PARTITION (month='2', region='b')",
        "ALTER TABLE sales ADD PARTITION (region='a b/c', month=3) LOCATION '/x/y'",
        "ALTER TABLE sales ADD PARTITION (region=NULL, month=1)",
        "ALTER TABLE sales ADD IF NOT EXISTS PARTITION (region='b', month=02)",
    )
    assert lines(session, "SHOW PARTITIONS sales") == [
        "region=__HIVE_DEFAULT_PARTITION__/month=1",
        "region=a b%2Fc/month=3",
        "region=b/month=2",
        "region=b/month=10",
    ]
    assert lines(session, "SHOW PARTITIONS sales WHERE month < 5 AND region = 'b'") == ["region=b/month=2"]
    assert lines(session, "SHOW PARTITIONS sales PARTITION (month=010)") == ["region=b/month=10"]
    assert catalog.get_partition("demo.sales", ("a b/c", "3")).location == "/x/y"
    catalog.add_partitions("demo.sales", [NewPartition(("c", "1"), row_count=5, size_bytes=70, file_count=2)])
    assert rows(session, "SHOW PARTITIONS sales WHERE region = 'c'") == [["region=c/month=1", 5, 70, 2]]


def test_value_partitions_are_changed(session: Session, catalog: Catalog) -> None:
    run(
        session,
        SALES,
        "ALTER TABLE sales ADD PARTITION (region='b', month=1) PARTITION (region='b', month=2)",
        "ALTER TABLE sales PARTITION (region='b', month=1) SET LOCATION '/x'",
        "ALTER TABLE sales PARTITION (region='b', month=1) SET FILEFORMAT ORC",
        "ALTER TABLE sales PARTITION (region='b', month=1) SET PROPERTIES ('p'='q')",
        "ALTER TABLE sales PARTITION (month=2, region='b') RENAME TO PARTITION (region='c', month=3)",
    )
    changed = catalog.get_partition("demo.sales", ("b", "1"))
    assert (changed.location, dict(changed.properties)["p"]) == ("/x", "q")
    assert lines(session, "SHOW PARTITIONS sales") == ["region=b/month=1", "region=c/month=3"]
    assert refused(session, "ALTER TABLE sales PARTITION (region='z', month=1) SET LOCATION '/x'")[0] == (
        "PartitionNotFoundError"
    )
    assert refused(session, "ALTER TABLE sales PARTITION (region='b', day=1) SET LOCATION '/x'") == (
        "InvalidPartitionSpecError",
        "region='b', day=1) SET LOCATION '/x'",
    )
    assert refused(session, "ALTER TABLE sales PARTITION (month=1) SET LOCATION '/x'")[0] == "PartialPartitionSpecError"
    assert refused(session, "ALTER TABLE sales ADD PARTITION (region='b', month=1)") == (
        "PartitionAlreadyExistsError",
        "region='b', month=1)",
    )
    assert refused(session, "ALTER TABLE sales ADD PARTITION (region='b', month='x')")[0] == "InvalidPartitionError"


def test_value_partitions_are_dropped_all_or_none(session: Session) -> None:
    added = " ".join(f"PARTITION (region='{region}', month={month})" for region in "ab" for month in range(1, 5))
    run(session, SALES, f"ALTER TABLE sales ADD {added}")
    assert refused(session, "ALTER TABLE sales DROP PARTITION (region='a'), PARTITION (region='z')")[0] == (
        "PartitionNotFoundError"
    )
    assert len(lines(session, "SHOW PARTITIONS sales")) == 8
    run(session, "ALTER TABLE sales DROP IF EXISTS PARTITION (region='a'), PARTITION (region='z')")
    run(session, "ALTER TABLE sales DROP PARTITION (region='b', month > 2), PARTITION (month=1)")
    assert lines(session, "SHOW PARTITIONS sales") == ["region=b/month=2"]
    assert refused(session, "ALTER TABLE sales DROP PARTITION (day=1)")[0] == "InvalidPartitionSpecError"


def test_a_table_is_repaired_from_its_folders(session: Session, tmp_path: Path) -> None:
    run(session, SALES)
    folder = tmp_path / "warehouse" / "demo" / "sales"
    for name in ("region=a/month=1", "region=a/month=2", "region=b/day=3"):
        (folder / name).mkdir(parents=True)
    assert rows(session, "MSCK REPAIR TABLE sales") == [[2, 0, 1]]
    assert lines(session, "SHOW PARTITIONS sales") == ["region=a/month=1", "region=a/month=2"]
    (folder / "region=a/month=1").rmdir()
    assert lines(session, "MSCK TABLE sales SYNC PARTITIONS")[0] == "0 partition(s) added, 1 dropped"
    assert lines(session, "SHOW PARTITIONS sales") == ["region=a/month=2"]


# --- partition indexes ----------------------------------------------------------------------------------------


def test_an_index_is_active_when_its_statement_returns(session: Session, catalog: Catalog) -> None:
    run(session, SALES, "ALTER TABLE sales ADD PARTITION (region='b', month=1) PARTITION (region='b', month=2)")
    assert rows(session, "CREATE PARTITION INDEX by_both ON sales (region, month)") == [["by_both", "ACTIVE", None]]
    assert catalog.get_partition_index("demo.sales", "by_both").state is IndexState.ACTIVE
    assert rows(session, "SHOW PARTITION INDEXES ON sales") == [
        ["by_month", "month", "ACTIVE", None],
        ["by_both", "region, month", "ACTIVE", None],
    ]
    assert refused(session, "CREATE PARTITION INDEX by_both ON sales (region)") == (
        "IndexAlreadyExistsError",
        "by_both ON sales (region)",
    )
    assert refused(session, "CREATE PARTITION INDEX i ON sales (day)") == ("InvalidIndexError", "day)")
    run(session, "DROP PARTITION INDEX by_both ON sales", "DROP PARTITION INDEX IF EXISTS by_both ON sales")
    assert refused(session, "DROP PARTITION INDEX by_both ON sales") == ("IndexNotFoundError", "by_both ON sales")


def test_an_index_that_fails_says_why(session: Session) -> None:
    run(session, SALES, "DROP PARTITION INDEX by_month ON sales")
    run(session, "ALTER TABLE sales ADD PARTITION (region='b', month='x')")
    [[name, state, failure]] = rows(session, "CREATE PARTITION INDEX i ON sales (month)")
    assert (name, state) == ("i", "FAILED")
    assert str(failure).startswith("INVALID_PARTITION_TYPE_DATA_ERROR: ")


# --- rows -----------------------------------------------------------------------------------------------------


WRONG_ROWS = [
    ("INSERT INTO sales VALUES (1.5, 'x', 1), (1.555, 'x', 1)", "InvalidValueError", "1.555, 'x', 1)"),
    ("INSERT INTO sales VALUES (1.5, 'x')", "InvalidValueError", "1.5, 'x')"),
    ("INSERT INTO sales (amount, day) VALUES (1, 2)", "InvalidTableError", "amount, day)"),
    ("INSERT INTO sales (amount, amount) VALUES (1, 2)", "InvalidTableError", "amount, amount)"),
    ("INSERT INTO sales PARTITION (day=1) SELECT 1", "InvalidPartitionSpecError", "day=1) SELECT 1"),
    ("INSERT INTO logs PARTITION (logdate='2014-01-01') VALUES (1)", "InvalidPartitionSpecError", "logdate="),
    ("INSERT INTO logs VALUES (1, '2014-02-30')", "InvalidValueError", "'2014-02-30')"),
    ("INSERT INTO none VALUES (1)", "TableNotFoundError", "none VALUES (1)"),
    ("INSERT INTO v VALUES (1)", "NotATableError", "v VALUES (1)"),
    ("LOAD DATA INPATH 'x' INTO TABLE recorded", "UnsupportedFormatError", "recorded"),
    ("SELECT 1", "EngineUnavailableError", None),
    ("INSERT INTO logs VALUES (1, '2014/02/28')", "EngineUnavailableError", None),
]


def test_rows_are_checked_before_an_engine_is_asked(session: Session) -> None:
    run(session, SALES, LOGS, "CREATE VIEW v AS SELECT 1", "CREATE TABLE recorded (a int) STORED AS RCFILE")
    for text, error, place in WRONG_ROWS:
        check_refused(session, text, error, place)


def test_a_script_stops_at_the_first_error_unless_it_shall_go_on(session: Session) -> None:
    script = "CREATE TABLE a (x int); DROP TABLE none; -- gone\nCREATE TABLE b (x int);"
    assert [outcome.error is None for outcome in session.run(script)] == [True, False]
    run(session, "DROP TABLE a")
    outcomes = list(session.run(script, keep_going=True))
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    assert json.loads(outcomes[0].as_json()) == {
        "statement": "CREATE TABLE a (x int)",
        "ok": True,
        "columns": [],
        "rows": [],
    }
    failed = json.loads(outcomes[1].as_json())
    assert (failed["statement"], failed["ok"], failed["error"]) == ("DROP TABLE none", False, "TableNotFoundError")
    assert failed["position"] == 11
    assert "demo.none" in failed["message"]


def test_partitions_of_every_key_type_are_added_shown_in_order_and_dropped(session: Session) -> None:
    run(
        session,
        "CREATE TABLE t (v int) PARTITIONED BY (at timestamp, price decimal(5,2), ok boolean, x double) "
        "PARTITION INDEX by_at (at, price), by_x (x, ok)",
        "ALTER TABLE t ADD PARTITION (at=TIMESTAMP '2024-01-10 00:00:00', price=10, ok=true, x=1e3) "
        "PARTITION (at='2024-01-09 23:59:59.5', price=9.50, ok=false, x=-2) "
        "PARTITION (at='2024-01-10 00:00:00', price='9.5', ok=true, x='NaN')",
    )
    shown = [
        "at=2024-01-09 23%3A59%3A59.5/price=9.50/ok=false/x=-2",
        "at=2024-01-10 00%3A00%3A00/price=9.5/ok=true/x=NaN",
        "at=2024-01-10 00%3A00%3A00/price=10/ok=true/x=1e3",
    ]
    assert lines(session, "SHOW PARTITIONS t") == shown
    assert lines(session, "SHOW PARTITIONS t PARTITION (price=9.500)") == shown[:2]
    assert lines(session, "SHOW PARTITIONS t WHERE at >= '2024-01-10' and price < 9.75") == [shown[1]]
    assert lines(session, "SHOW PARTITIONS t WHERE x between -2.0 and 1e3 and ok in (true, null)") == [shown[2]]
    assert lines(session, "SHOW PARTITIONS t WHERE x > 1e300") == [shown[1]]
    explained = "\n".join(lines(session, "EXPLAIN PARTITIONS t WHERE at = '2024-01-10' and price in (9.5, 10)"))
    assert "by_at" in explained
    assert "at = '2024-01-10 00:00:00' and price = 9.5" in explained
    for condition in ("at like '2024%'", "ok like 't%'"):
        assert refused(session, f"SHOW PARTITIONS t WHERE {condition}")[0] == "UnsupportedExpressionError"
    for condition in ("at = 'noon'", "at = 5", "price = 'x'", "ok = 'yes'", "x = '1_0'"):
        assert refused(session, f"SHOW PARTITIONS t WHERE {condition}")[0] == "LiteralTypeError"
    run(session, "ALTER TABLE t DROP PARTITION (at > '2024-01-09 23:59:59.500000', price = 9.50)")
    assert lines(session, "SHOW PARTITIONS t") == [shown[0], shown[2]]


# --- DROP … PURGE ---------------------------------------------------------------------------------------------------


def with_file(catalog: Catalog, folder: str) -> Path:
    path = Path(folder) / own_name(catalog)
    path.parent.mkdir(parents=True)
    path.write_text("rows")
    return path


def test_purge_deletes_the_files_of_dropped_partitions(session: Session, catalog: Catalog, tmp_path: Path) -> None:
    run(session, SALES)
    table = catalog.get_table("demo.sales")
    one, two, other = (with_file(catalog, f"{table.location}/region=EU/month={month}") for month in (1, 2, 3))
    outside = with_file(catalog, str(tmp_path / "outside"))
    run(session, "ALTER TABLE sales ADD PARTITION (region='EU', month=1) PARTITION (region='EU', month=2)")
    inside = with_file(catalog, f"{table.location}/inside")
    run(
        session,
        f"ALTER TABLE sales ADD PARTITION (region='EU', month=4) LOCATION '{outside.parent}' "
        f"PARTITION (region='US', month=1) LOCATION '{inside.parent}'",
    )
    answer = session.execute("ALTER TABLE sales DROP PARTITION (region='EU') PURGE")
    assert list(answer.rows[0])[:2] == [3, 2]
    assert "the files of 1 stay, because they lie outside" in (answer.text or "")
    assert [path.exists() for path in (one, two, other, outside, inside)] == [False, False, True, True, True]
    assert lines(session, "SHOW PARTITIONS sales") == ["region=US/month=1"]
    assert lines(session, "ALTER TABLE sales DROP IF EXISTS PARTITION (region='EU') PURGE") == [
        "Dropped 0 partition(s) and deleted the files of 0 (0 file(s), 0 bytes)."
    ]


def test_purge_leaves_the_files_of_external_tables_and_tells_so(
    session: Session, catalog: Catalog, tmp_path: Path
) -> None:
    file = with_file(catalog, str(tmp_path / "theirs" / "day=1"))
    run(
        session,
        f"CREATE EXTERNAL TABLE t (a int) PARTITIONED BY (day int) STORED AS PARQUET LOCATION '{tmp_path}/theirs'",
        "ALTER TABLE t ADD PARTITION (day=1)",
    )
    assert lines(session, "ALTER TABLE t DROP PARTITION (day=1) PURGE") == [
        "Dropped 1 partition(s) and deleted the files of 0 (0 file(s), 0 bytes); the files of 1 stay, because "
        "demo.t is an external table."
    ]
    assert lines(session, "DROP TABLE t PURGE") == [
        f"Dropped demo.t. Its files stay, because it is an external table: {tmp_path}/theirs"
    ]
    assert file.exists()


def test_vacuum_finishes_an_interrupted_purge_of_partitions(
    session: Session, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(session, SALES, *(f"ALTER TABLE sales ADD PARTITION (region='EU', month={month})" for month in (1, 2)))
    location = catalog.get_table("demo.sales").location
    one, two = (with_file(catalog, f"{location}/region=EU/month={month}") for month in (1, 2))

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("catalog.partitions.purging.finish_partition_purge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.execute("ALTER TABLE sales DROP PARTITION (region='EU') PURGE")
    assert lines(session, "SHOW PARTITIONS sales") == []
    # A partition that was added again keeps its file.
    run(session, "ALTER TABLE sales ADD PARTITION (region='EU', month=2)")
    assert catalog.vacuum(dry_run=True).purged == ("demo.sales (partitions)",)
    assert [one.exists(), two.exists()] == [True, True]
    assert catalog.vacuum().purged == ("demo.sales (partitions)",)
    assert [one.exists(), two.exists()] == [False, True]
    assert catalog.vacuum().purged == ()
