"""Parsing of statements, and positions of errors."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import CatalogError, StatementTooLongError
from catalog.model import Buckets, Column, IndexDefinition
from catalog.statements import model as m
from catalog.statements.merges import MergeAction, MergeCase
from catalog.statements.parser import MAXIMUM_LENGTH, MAXIMUM_TOKENS, parse_statement
from catalog.statements.terms import KeyCondition, Literal, LiteralKind, TableReference
from catalog.types.literals import quoted, unquoted

T = TableReference(None, "t")
K = {"k": "v"}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("CREATE DATABASE db", m.CreateDatabase(name="db")),
        (
            "create schema if not exists db location '/x' comment 'c' with dbproperties ('a'='b')",
            m.CreateDatabase(name="db", if_not_exists=True, comment="c", location="/x", properties={"a": "b"}),
        ),
        ("DROP DATABASE IF EXISTS `My Base`", m.DropDatabase(name="my base", if_exists=True)),
        ("USE db", m.UseDatabase(name="db")),
        ("SHOW DATABASES", m.ShowDatabases()),
        ("show schemas", m.ShowDatabases()),
        ("DESC DATABASE EXTENDED db", m.DescribeDatabase(name="db")),
        ("SHOW TABLES", m.ShowTables()),
        ("SHOW TABLES IN db", m.ShowTables(database="db")),
        ("DESCRIBE t", m.DescribeTable(table=T)),
        ("desc formatted db.t", m.DescribeTable(table=TableReference("db", "t"), is_formatted=True)),
        ("SHOW CREATE TABLE t", m.ShowCreateTable(table=T)),
        ("DROP TABLE IF EXISTS t PURGE", m.DropTable(table=T, if_exists=True, purge=True)),
        ("DROP VIEW t", m.DropView(table=T)),
        (
            "ALTER TABLE t SET TBLPROPERTIES ('a'='b', c.d = -5, e=TRUE)",
            m.SetProperties(table=T, properties={"a": "b", "c.d": "-5", "e": "true"}),
        ),
        ("ALTER TABLE t UNSET TBLPROPERTIES ('a', b)", m.UnsetProperties(table=T, names=("a", "b"))),
        (
            "ALTER TABLE t ADD COLUMNS (comment string COMMENT 'why', location LONG)",
            m.AddColumns(table=T, columns=(Column("comment", "string", "why"), Column("location", "bigint"))),
        ),
        ("ALTER TABLE t CHANGE COLUMN a b int", m.ChangeColumn(table=T, name="a", new_name="b", type="int")),
        ("ALTER TABLE t RENAME COLUMN a TO b", m.ChangeColumn(table=T, name="a", new_name="b")),
        ("ALTER TABLE t DROP COLUMNS (a, `b c`)", m.DropColumns(table=T, names=("a", "b c"))),
        ("ALTER TABLE t DROP COLUMN a, b", m.DropColumns(table=T, names=("a", "b"))),
        ("ALTER TABLE t RENAME TO u", m.RenameTable(table=T, new_table=TableReference(None, "u"))),
        ("ALTER TABLE t SET LOCATION '/x'", m.SetLocation(table=T, location="/x")),
        ("CREATE PARTITION INDEX i ON t (k1, k2)", m.CreateIndex(table=T, index="i", keys=("k1", "k2"))),
        ("DROP PARTITION INDEX IF EXISTS i ON TABLE t", m.DropIndex(table=T, index="i", if_exists=True)),
        ("SHOW PARTITION INDEXES ON t", m.ShowIndexes(table=T)),
        ("SHOW PARTITIONS t", m.ShowPartitions(table=T)),
        ("SHOW PARTITIONS t WHERE k = 'x;' AND n > 2", m.ShowPartitions(table=T, where="k = 'x;' AND n > 2")),
        ("SHOW PARTITIONS t PARTITION (k='v')", m.ShowPartitions(table=T, values=K)),
        ("EXPLAIN PARTITIONS t WHERE /* all */ true", m.ExplainPartitions(table=T, where="true")),
        ("ALTER TABLE t ADD PARTITION ('2018-01-01')", m.AddSchemePartitions(table=T, items=("2018-01-01",))),
        (
            "ALTER TABLE t ADD PARTITION('(Mars, Venus)', 'Pluto')",
            m.AddSchemePartitions(table=T, items=("(Mars, Venus)", "Pluto")),
        ),
        (
            "ALTER TABLE t SPLIT PARTITION(4) INTO('Canada', '(Good, NotGood)')",
            m.SplitPartition(table=T, partition_id=4, items=("Canada", "(Good, NotGood)")),
        ),
        ("ALTER TABLE t DROP PARTITION (1, 2)", m.DropSchemePartitions(table=T, partition_ids=(1, 2))),
        (
            "alter table t drop partition(1) with data",
            m.DropSchemePartitions(table=T, partition_ids=(1,), with_data=True),
        ),
        ("ALTER TABLE t MERGE PARTITION (1, 2, 3)", m.MergePartitions(table=T, partition_ids=(1, 2, 3))),
        ("ALTER TABLE t SET PARTITION_NUM 12", m.SetPartitionNumber(table=T, count=12)),
        ("ALTER TABLE t SET num_partitions = 12", m.SetPartitionNumber(table=T, count=12)),
        (
            "ALTER TABLE t ADD IF NOT EXISTS PARTITION (k='v') LOCATION '/x' PARTITION (k=NULL)",
            m.AddValuePartitions(
                table=T,
                partitions=(m.PartitionToAdd(K, "/x"), m.PartitionToAdd({"k": None})),
                if_not_exists=True,
            ),
        ),
        (
            "ALTER TABLE t DROP IF EXISTS PARTITION (k='v', n >= 5), PARTITION (k=DATE '2020-01-01')",
            m.DropValuePartitions(
                table=T,
                partitions=(
                    (
                        KeyCondition("k", "=", Literal(LiteralKind.TEXT, "v")),
                        KeyCondition("n", ">=", Literal(LiteralKind.NUMBER, "5")),
                    ),
                    (KeyCondition("k", "=", Literal(LiteralKind.DATE, "2020-01-01")),),
                ),
                if_exists=True,
            ),
        ),
        (
            "CALL iceberg.system.migrate(schema_name => 'TestDB', table_name => 'customer_orders', "
            "recursive_directory => 'true')",
            m.MigrateTable(table=TableReference("testdb", "customer_orders"), options={"recursive_directory": "true"}),
        ),
        (
            "call `system`.migrate('db', 't', FALSE, NULL, 'SKIP', false)",
            m.MigrateTable(
                table=TableReference("db", "t"),
                options={"recursive_directory": "false", "unusable_files": "skip"},
                verify=False,
            ),
        ),
        (
            "CALL iceberg.system.migrate(verified_partitions => 10, timestamps => 'with zone', table_name => 't', "
            "schema_name => 'db')",
            m.MigrateTable(
                table=TableReference("db", "t"), options={"timestamps": "with zone"}, verified_partitions=10
            ),
        ),
        (
            "CALL iceberg.system.revert(schema_name => 'db', table_name => 't')",
            m.RevertTable(table=TableReference("db", "t")),
        ),
        ("CALL system.revert('db', 't', 'true')", m.RevertTable(table=TableReference("db", "t"), lose_data=True)),
        (
            "CALL calve.system.rollback_to_snapshot('Db.T', 5781947118336215154)",
            m.RollBackToSnapshot(table=TableReference("db", "t"), snapshot_id=5_781_947_118_336_215_154),
        ),
        (
            "CALL system.rollback_to_snapshot(snapshot_id => 7, table => 't')",
            m.RollBackToSnapshot(table=TableReference(None, "t"), snapshot_id=7),
        ),
        (
            "CALL calve.system.rollback_to_timestamp('db.t', TIMESTAMP '2026-01-31 12:00:00')",
            m.RollBackToTimestamp(table=TableReference("db", "t"), at=datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ),
        (
            "CALL calve.system.rollback_to_timestamp('db.t', '2026-01-31 12:00:00+01:00')",
            m.RollBackToTimestamp(table=TableReference("db", "t"), at=datetime(2026, 1, 31, 11, tzinfo=UTC)),
        ),
        (
            "CALL iceberg.system.snapshot(schema_name => 'db', table_name => 't', target_table_name => 'u')",
            m.SnapshotTable(table=TableReference("db", "t"), target=TableReference(None, "u")),
        ),
        (
            "CALL iceberg.system.snapshot('db', 't', 'u', 'fail', 'trials', 's3://trials/u')",
            m.SnapshotTable(
                table=TableReference("db", "t"),
                target=TableReference("trials", "u"),
                options={"recursive_directory": "fail", "target_location": "s3://trials/u"},
            ),
        ),
        (
            "ALTER TABLE i EXECUTE add_files_from_table(schema_name => 'db', table_name => 't', partition_filter => "
            "map(ARRAY['K', 'n'], ARRAY['v', NULL]), recursive_directory => 'true', duplicate_file => 'skip')",
            m.AddFilesFromTable(
                table=TableReference(None, "i"),
                source=TableReference("db", "t"),
                partitions={"k": "v", "n": None},
                options={"recursive_directory": "true", "duplicate_files": "skip"},
            ),
        ),
        (
            "ALTER TABLE db.i EXECUTE add_files_from_table('db', 't', map())",
            m.AddFilesFromTable(table=TableReference("db", "i"), source=TableReference("db", "t"), partitions={}),
        ),
        ("MSCK REPAIR TABLE t", m.RepairTable(table=T)),
        ("MSCK TABLE t ADD PARTITIONS", m.RepairTable(table=T)),
        ("MSCK REPAIR TABLE t SYNC PARTITIONS", m.RepairTable(table=T, mode="sync")),
        (
            "ALTER TABLE t PARTITION (k='v') SET LOCATION '/x'",
            m.SetPartitionLocation(table=T, values=K, location="/x"),
        ),
        (
            "ALTER TABLE t PARTITION (k='v') SET FILEFORMAT orc",
            m.SetPartitionFormat(table=T, values=K, format="ORC"),
        ),
        (
            "ALTER TABLE t PARTITION (k='v') SET PROPERTIES ('has_encrypted_data'='true')",
            m.SetPartitionProperties(table=T, values=K, properties={"has_encrypted_data": "true"}),
        ),
        (
            "ALTER TABLE t PARTITION (k='v') RENAME TO PARTITION (k='w')",
            m.RenamePartition(table=T, values=K, new_values={"k": "w"}),
        ),
        ("INSERT INTO t SELECT a -- all\nFROM u", m.InsertQuery(table=T, query="SELECT a -- all\nFROM u")),
        ("INSERT INTO TABLE t (a, b) (SELECT 1, 2)", m.InsertQuery(table=T, columns=("a", "b"), query="(SELECT 1, 2)")),
        (
            "INSERT INTO t PARTITION (k='v') WITH x AS (SELECT 1) SELECT * FROM x",
            m.InsertQuery(table=T, values=K, query="WITH x AS (SELECT 1) SELECT * FROM x"),
        ),
        (
            "LOAD DATA LOCAL INPATH '/x/y.csv' INTO TABLE t OPTIONS ('delimiter'=';', 'Header'='false')",
            m.LoadData(table=T, path="/x/y.csv", options={"DELIMITER": ";", "HEADER": "false"}),
        ),
        ("SELECT /*+ BROADCAST(t) */ ';' FROM t", m.Select(query="SELECT /*+ BROADCAST(t) */ ';' FROM t")),
        ("((SELECT 1) UNION (SELECT 2))", m.Select(query="((SELECT 1) UNION (SELECT 2))")),
        (
            "CREATE VIEW v (a, b COMMENT 'x') AS SELECT 1, 2",
            m.CreateView(table=TableReference(None, "v"), columns=(("a", None), ("b", "x")), query="SELECT 1, 2"),
        ),
        (
            "CREATE OR REPLACE VIEW v COMMENT 'c' TBLPROPERTIES ('a'='b') AS WITH x AS (SELECT 1) SELECT * FROM x",
            m.CreateView(
                table=TableReference(None, "v"),
                query="WITH x AS (SELECT 1) SELECT * FROM x",
                or_replace=True,
                comment="c",
                properties={"a": "b"},
            ),
        ),
    ],
)
def test_a_statement_is_read_as_it_is_meant(text: str, meant: m.Statement) -> None:
    assert parse_statement(text) == meant
    assert parse_statement(f"{text}\n-- done") in (meant, _with_query(meant, f"{text}\n-- done"))


def _with_query(meant: m.Statement, text: str) -> m.Statement:
    """Queries extend to the end of the statement, with any text."""
    fields = {name: value for name, value in vars(meant).items() if name != "places"}
    return (
        type(meant)(**fields | {"query": text[-len(fields["query"] + "\n-- done") :]}) if "query" in fields else meant
    )


def test_the_partition_tables_of_the_guide_of_carbondata() -> None:
    hashed = parse_statement(
        """CREATE TABLE IF NOT EXISTS hash_partition_table(
          col_A String, col_B Int, col_C Long, col_D Decimal(10,2), col_F Timestamp
        ) PARTITIONED BY (col_E Long)
        STORED BY 'carbondata' TBLPROPERTIES('PARTITION_TYPE'='HASH','NUM_PARTITIONS'='9')"""
    )
    assert hashed == m.CreateTable(
        table=TableReference(None, "hash_partition_table"),
        columns=(
            Column("col_a", "string"),
            Column("col_b", "int"),
            Column("col_c", "bigint"),
            Column("col_d", "decimal(10,2)"),
            Column("col_f", "timestamp"),
        ),
        partition_keys=(Column("col_e", "bigint"),),
        if_not_exists=True,
        stored_by="carbondata",
        properties={"PARTITION_TYPE": "HASH", "NUM_PARTITIONS": "9"},
    )


def test_every_clause_of_a_hive_table_in_any_order() -> None:
    clauses = [
        "COMMENT 'it''s'",
        "PARTITIONED BY (k string, m int COMMENT 'month')",
        "PARTITION INDEX i (k, m), j (m)",
        "CLUSTERED BY (a) INTO 4 BUCKETS",
        "STORED AS ORC",
        "LOCATION '/x'",
        "TBLPROPERTIES ('a'='b')",
    ]
    meant = m.CreateTable(
        table=TableReference("db", "t"),
        columns=(Column("a", "int", "x"), Column("b", "array<struct<x:int,y:map<string,decimal(5,0)>>>")),
        partition_keys=(Column("k", "string"), Column("m", "int", "month")),
        indexes=(IndexDefinition("i", ("k", "m")), IndexDefinition("j", ("m",))),
        is_external=True,
        comment="it's",
        location="/x",
        properties={"a": "b"},
        buckets=Buckets(("a",), 4),
        format="ORC",
    )
    columns = "(a int COMMENT 'x', b ARRAY<struct<x: INT, y: map<string, decimal(5)>>>)"
    for given_clauses in (clauses, clauses[::-1]):
        assert parse_statement(f"CREATE EXTERNAL TABLE db.t {columns} {' '.join(given_clauses)}") == meant


def test_classes_of_hive_stand_for_their_format() -> None:
    read = parse_statement(
        "CREATE TABLE t (a int) ROW FORMAT SERDE 'org.apache.hadoop.hive.ql.io.orc.OrcSerde' WITH SERDEPROPERTIES "
        "('serialization.format'='1') STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.orc.OrcInputFormat' "
        "OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat'"
    )
    assert isinstance(read, m.CreateTable)
    assert read.format == "ORC"


def test_delimiters_are_those_of_text_files() -> None:
    read = parse_statement(
        "CREATE TABLE t (a int) ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' LINES TERMINATED BY '\n'"
    )
    assert isinstance(read, m.CreateTable)
    assert (read.format, read.delimiters["field.delim"], read.delimiters["line.delim"]) == ("TEXTFILE", "|", "\n")


def test_the_parts_of_an_update_are_as_they_were_written() -> None:
    read = parse_statement(
        "UPDATE t /* , b = 2 */ SET a = if(x = 1, 'it''s, WHERE', arr[1]) -- c = 3\n, `B c` = (SELECT 1 WHERE true)\n"
        "where a IN (1, 2) and b = '='"
    )
    assert read == m.UpdateRows(
        table=TableReference(None, "t"),
        assignments={"a": "if(x = 1, 'it''s, WHERE', arr[1]) -- c = 3", "b c": "(SELECT 1 WHERE true)"},
        where="a IN (1, 2) and b = '='",
    )
    everything = parse_statement("update d.t set a = -1")
    assert everything == m.UpdateRows(table=TableReference("d", "t"), assignments={"a": "-1"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DELETE FROM t", m.DeleteRows(table=TableReference(None, "t"))),
        ("delete from d.t where a = 1", m.DeleteRows(table=TableReference("d", "t"), where="a = 1")),
        ("TRUNCATE TABLE t", m.TruncateTable(table=TableReference(None, "t"))),
        ("TRUNCATE TABLE t PARTITION (a = 1)", m.TruncateTable(table=TableReference(None, "t"), values={"a": "1"})),
        ("ALTER TABLE t COMPACT", m.CompactTable(table=TableReference(None, "t"))),
        (
            "ALTER TABLE t PARTITION (a = '1') COMPACT 'major'",
            m.CompactTable(table=TableReference(None, "t"), values={"a": "1"}),
        ),
        (
            "INSERT OVERWRITE TABLE t PARTITION (a = 1) SELECT 2",
            m.InsertQuery(table=TableReference(None, "t"), overwrite=True, values={"a": "1"}, query="SELECT 2"),
        ),
        (
            "LOAD DATA INPATH 'x' OVERWRITE INTO TABLE t",
            m.LoadData(table=TableReference(None, "t"), path="x", overwrite=True),
        ),
    ],
)
def test_changes_of_rows(text: str, expected: m.Statement) -> None:
    assert parse_statement(text) == expected


def test_rows_keep_what_was_written() -> None:
    read = parse_statement(
        "INSERT INTO t (a, b) VALUES (-1.50e3, 'it''s'), (007, NULL), (true, X'0aFF'), (DATE '2020-01-01', 5L)"
    )
    assert isinstance(read, m.InsertValues)
    assert [[(cell.kind.name, cell.text) for cell in row] for row in read.rows] == [
        [("NUMBER", "-1.50e3"), ("TEXT", "it's")],
        [("NUMBER", "007"), ("NULL", None)],
        [("BOOLEAN", "true"), ("BINARY", "0aff")],
        [("DATE", "2020-01-01"), ("NUMBER", "5")],
    ]


def test_places_of_the_parts_are_known() -> None:
    text = "ALTER TABLE db.t SPLIT PARTITION (4) INTO ('a', 'b')"
    assert parse_statement(text).places == {"table": 12, "partition_id": 34, "items": 43}


@given(st.text())
def test_a_text_reads_as_it_was_quoted(text: str) -> None:
    assert unquoted(quoted(text)) == text


@pytest.mark.parametrize(
    ("token", "meant"),
    [
        ("'it''s'", "it's"),
        ('"say ""x"""', 'say "x"'),
        (r"'a\'b\"c\\d'", "a'b\"c\\d"),
        (r"'\n\t\r\0'", "\n\t\r\0"),
        (r"'50\% a\_b \x'", r"50\% a\_b x"),
        (r"'\u00e9\101\ud83d\ude00\U0001F600'", "éA😀😀"),
    ],
)
def test_escapes_are_those_of_spark(token: str, meant: str) -> None:
    assert unquoted(token) == meant


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES " + ", ".join(["(1, 'x')"] * 4_000),
        "CREATE TABLE t (" + ", ".join(f"c{n} string" for n in range(4_000)) + ")",
        "SELECT " + "(" * 50_000,
        "CREATE TABLE t (a " + "array<" * 30_000,
        "DROP TABLE '" + "'' " * 30_000,
        "/*" * 50_000,
        "-" * 100_000,
        "1" * 100_000,
        "SHOW PARTITIONS t WHERE " + "x" * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_long_statements_are_read_in_time(text: str) -> None:
    # Each takes about a second; with quadratic time it would take many minutes.
    start = time.process_time()
    with suppress(CatalogError):
        parse_statement(text)
    assert time.process_time() - start < 120


def test_statements_are_bounded() -> None:
    with pytest.raises(StatementTooLongError, match="characters"):
        parse_statement("SELECT '" + "x" * MAXIMUM_LENGTH + "'")
    with pytest.raises(StatementTooLongError, match="LOAD DATA"):
        parse_statement("INSERT INTO t VALUES (" + "1," * (MAXIMUM_TOKENS // 2 + 1) + "1)")


def test_merge_is_split_into_its_parts() -> None:
    read = parse_statement(
        "MERGE INTO d.t AS x USING (SELECT id, CASE WHEN a THEN 1 END AS on_ FROM s WHERE (b)) `S 1`\n"
        "ON x.id = `S 1`.id AND x.a = 'WHEN' -- WHEN\n"
        "WHEN MATCHED AND CASE WHEN x.a THEN 1 END = 1 THEN UPDATE SET x.a = f(1, 2), b = CASE WHEN c THEN d END "
        "WHEN NOT MATCHED BY TARGET THEN INSERT (a, b) VALUES (f(1, 2), 'x, y') "
        "WHEN NOT MATCHED BY SOURCE AND y THEN DELETE"
    )
    assert read == m.MergeRows(
        table=TableReference("d", "t"),
        alias="x",
        source="(SELECT id, CASE WHEN a THEN 1 END AS on_ FROM s WHERE (b))",
        source_alias="s 1",
        condition="x.id = `S 1`.id AND x.a = 'WHEN' -- WHEN",
        clauses=[
            m.MergeClause(
                MergeCase.MATCHED,
                MergeAction.UPDATE,
                "CASE WHEN x.a THEN 1 END = 1",
                {"a": "f(1, 2)", "b": "CASE WHEN c THEN d END"},
            ),
            m.MergeClause(MergeCase.NOT_MATCHED, MergeAction.INSERT, None, {"a": "f(1, 2)", "b": "'x, y'"}),
            m.MergeClause(MergeCase.NOT_MATCHED_BY_SOURCE, MergeAction.DELETE, "y", {}),
        ],
    )
    short = parse_statement(
        "merge into t using s on a = b when matched then update set * when not matched then insert *"
    )
    assert short == m.MergeRows(
        table=TableReference(None, "t"),
        alias="t",
        source="s",
        source_alias="s",
        condition="a = b",
        clauses=[
            m.MergeClause(MergeCase.MATCHED, MergeAction.UPDATE, None, None),
            m.MergeClause(MergeCase.NOT_MATCHED, MergeAction.INSERT, None, None),
        ],
    )
