"""Statements about partitions and partition indexes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.errors import CatalogError
from catalog.statements.results import as_text
from catalog.statements.session import Session
from tests.catalog.statements.test_session import AREA, LOGS, SALES, VINS, check_refused, refused, rows, run
from tests.catalog.statements.test_session import session as session
from tests.support.written_files import own_name


def lines(session: Session, text: str) -> list[str]:
    return as_text(session.execute(text))


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


def test_value_partitions_are_shown_in_the_order_of_their_values(
    session: Session, catalog: Catalog, tmp_path: Path
) -> None:
    run(
        session,
        SALES,
        "ALTER TABLE sales ADD PARTITION (region='b', month=10) PARTITION (month='2', region='b')",
        f"ALTER TABLE sales ADD PARTITION (region='a b/c', month=3) LOCATION '{tmp_path}/x/y'",
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
    assert catalog.get_partition("demo.sales", ("a b/c", "3")).location == f"{tmp_path}/x/y"
    catalog.add_partitions("demo.sales", [NewPartition(("c", "1"), row_count=5, size_bytes=70, file_count=2)])
    assert rows(session, "SHOW PARTITIONS sales WHERE region = 'c'") == [["region=c/month=1", 5, 70, 2]]


def test_tables_and_partitions_have_their_folders(session: Session, catalog: Catalog, tmp_path: Path) -> None:
    run(
        session,
        SALES,
        "ALTER TABLE sales ADD PARTITION (region='a/b', month=1)",
        f"ALTER TABLE sales ADD PARTITION (region='c', month=2) LOCATION '{tmp_path}/c'",
        "ALTER TABLE sales ADD IF NOT EXISTS PARTITION (region='a/b', month=1)",
        "CREATE TABLE plain (a int) STORED AS PARQUET",
    )
    location = Path(catalog.get_table("demo.sales").location)
    assert (location / "region=a%2Fb" / "month=1").is_dir()
    assert (tmp_path / "c").is_dir()
    plain = Path(catalog.get_table("demo.plain").location)
    assert plain.is_dir()
    run(session, "DROP TABLE plain")
    plain.rmdir()
    plain.write_text("a file")
    assert refused(session, "CREATE TABLE plain (a int) STORED AS PARQUET")[0] == "InvalidLocationError"
    assert "plain" not in [table.name for table in catalog.list_tables("demo")]


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
    unfit = "folder region=b/day=3: its last part does not have the form month=value"
    assert rows(session, "MSCK REPAIR TABLE sales") == [[2, 0, 1, [unfit]]]
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


@pytest.mark.usefixtures("unfit_values")
def test_an_index_that_fails_says_why(session: Session) -> None:
    run(session, SALES, "DROP PARTITION INDEX by_month ON sales")
    run(session, "ALTER TABLE sales ADD PARTITION (region='b', month='x')")
    [[name, state, failure]] = rows(session, "CREATE PARTITION INDEX i ON sales (month)")
    assert (name, state) == ("i", "FAILED")
    assert str(failure).startswith("INVALID_PARTITION_TYPE_DATA_ERROR: ")


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
    path.parent.mkdir(parents=True, exist_ok=True)
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
