"""Statements that cannot be parsed, and the places that their errors name."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import (
    CatalogError,
    InvalidIdentifierError,
    ProcedureArgumentError,
    StatementSyntaxError,
    UnknownProcedureError,
    UnknownTypeError,
    UnsupportedStatementError,
)
from catalog.statements import model as m
from catalog.statements.parser import parse_statement

MIGRATE = "CALL iceberg.system.migrate"
ROLL_BACK = "CALL calve.system.rollback_to_snapshot"
ADD_FILES = "ALTER TABLE i EXECUTE add_files_from_table"


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("SELEC 1", "SELEC", "'SELEC' cannot be read; expected ALTER, CALL, CREATE, DELETE, DESC"),
        ("CREATE TABLE", None, "ends too early; expected IF, a name"),
        (
            "ALTER TABLE t PARTITIONX (4)",
            "PARTITIONX",
            "expected '.', ADD, CHANGE, COMPACT, DROP, EXECUTE, MERGE",
        ),
        ("ALTER TABLE t SPLIT PARTITION ('4') INTO ('a')", "'4'", "expected a whole number"),
        ("ALTER TABLE t DROP PARTITION (1.5)", "1.5", "cannot be read"),
        ("ALTER TABLE t MERGE PARTITION (1, 2", None, "expected ')', ','"),
        ("ALTER TABLE t SET PARTITION_NUM many", "many", "expected '=', a whole number"),
        ("ALTER TABLE t CHANGE a comment int", "comment", "names like this need backquotes"),
        ("CREATE TABLE t (a int) COMMENT 'x' COMMENT 'y'", "'y'", "COMMENT appears twice"),
        ("CREATE TABLE t (a int) TBLPROPERTIES ('a'='b', 'A'='c')", "'A'", "'A' is set twice"),
        ("SHOW TABLES IN 'db'", "'db'", "expected a name"),
        ("DROP TABLE t; DROP TABLE u", ";", "cannot be read"),
        ("SHOW PARTITIONS t WHERE", None, "expected a condition"),
        ("INSERT INTO t VALUES (1, a)", "a)", "expected"),
        ("INSERT INTO t VALUES (1 + 1)", "+", "expected ')', ','"),
        ("INSERT INTO t VALUES (X'1')", "X'1'", "pairs of hexadecimal digits"),
        (f"{MIGRATE}(schema_name = 'a')", "= 'a'", "expected '=>'"),
        (f"{MIGRATE}('a', 'b'", None, "expected ')', ','"),
        (MIGRATE, None, "expected '(', '.'"),
        (f"{ADD_FILES}('a', 'b', map(ARRAY('k'), ARRAY['v']))", "('k')", "expected '['"),
        ("DROP TABLE 'x", "'x", "a quote is not closed"),
        ("DROP TABLE `x", "`x", "a quote is not closed"),
        ("DROP /* TABLE t", "/*", "a comment is not closed"),
        ("DROP TABLE t\0", "\0", "cannot be read"),
        ("CREATE DATABASE d COMMENT '\\0'", "'\\0'", "U+0000"),
        ("CREATE DATABASE d COMMENT '\\ud800'", "'\\ud800'", "half a character"),
        ("CREATE DATABASE d\udcff", "\udcff", "not in the encoding UTF-8"),
        ("ALTER TABLE t SPLIT PARTITION (99999999999999999999) INTO ('a')", "9999", "too large"),
    ],
)
def test_a_syntax_error_points_at_the_place(text: str, place: str | None, said: str) -> None:
    with pytest.raises(StatementSyntaxError) as caught:
        parse_statement(text)
    assert said in str(caught.value)
    assert caught.value.position == (len(text) if place is None else text.index(place))
    assert caught.value.statement == text


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("OPTIMIZE t", "OPTIMIZE", "OPTIMIZE is no statement here"),
        ("ALTER INDEX i ON t REBUILD", "INDEX", "there is nothing to rebuild"),
        ("CREATE TABLE t LIKE u", "LIKE", "SHOW CREATE TABLE"),
        ("CREATE TABLE t (a int) CLUSTERED BY (a) SORTED BY (a DESC, b) INTO 2 BUCKETS", "SORTED", "SORTED BY"),
        ("CREATE TABLE t (a int) ROW FORMAT SERDE 'x.Y'", "'x.Y'", "unknown SerDe"),
        ("CREATE TABLE t (a int) ROW FORMAT DELIMITED STORED AS ORC", "ORC", "remove ROW FORMAT"),
    ],
)
def test_what_is_done_elsewhere_is_said(text: str, place: str, said: str) -> None:
    with pytest.raises(UnsupportedStatementError) as caught:
        parse_statement(text)
    assert said in str(caught.value)
    assert caught.value.position == text.index(place)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (f"{MIGRATE}()", "iceberg", "migrate needs schema_name; write schema_name => 'shop'"),
        (f"{MIGRATE}(schema_name => 'a')", "iceberg", "migrate needs table_name"),
        (f"{MIGRATE}('a', NULL)", "NULL", "migrate needs table_name"),
        (f"{MIGRATE}('a', tabel_name => 'b')", "tabel_name", "cannot be mixed"),
        (f"{MIGRATE}(schema_name => 'a', 'b')", "'b'", "cannot be mixed"),
        (f"{MIGRATE}(schema_name => 'a', tabel_name => 'b')", "tabel_name", "it takes schema_name, table_name, rec"),
        (f"{MIGRATE}(table_name => 'a', TABLE_NAME => 'b')", "TABLE_NAME", "table_name is given twice"),
        (f"{MIGRATE}('a', 'b', 'true', NULL, NULL, NULL, NULL, NULL, 9)", "9", "at most 8 arguments"),
        (f"{MIGRATE}('a', 5)", "5", "table_name must be a string in quotes"),
        (f"{MIGRATE}('a', 'b/c')", "'b/c'", "contains '/'"),
        (f"{MIGRATE}('a', 'b', 'yes')", "'yes'", "one of 'true', 'false', 'fail', not 'yes'"),
        (f"{MIGRATE}('a', 'b', 'true', 'utc')", "'utc'", "one of 'with zone', 'without zone'"),
        (f"{MIGRATE}('a', 'b', verify => 1)", "verify", "cannot be mixed"),
        (f"{MIGRATE}(schema_name => 'a', table_name => 'b', verify => 1)", "1)", "verify must be a string in quotes"),
        (f"{MIGRATE}(schema_name => 'a', table_name => 'b', verified_partitions => 0)", "0)", "a whole number of at"),
        (f"{MIGRATE}(schema_name => 'a', table_name => map())", "map", "must be a string in quotes"),
        (f"{ROLL_BACK}('a.b.c', 1)", "'a.b.c'", "table must be a table, as 'database.table'"),
        (f"{ROLL_BACK}('a.', 1)", "'a.'", "table cannot be used"),
        (f"{ROLL_BACK}('a.b', '1')", "'1'", "snapshot_id must be the id of a snapshot; for instance 578"),
        (f"{ROLL_BACK}('a.b', 9223372036854775808)", "9223", "snapshot_id must be the id of a snapshot"),
        (f"{ROLL_BACK}('a.b')", "calve", "rollback_to_snapshot needs snapshot_id"),
        (f"{ROLL_BACK.replace('snapshot', 'timestamp')}('a.b', 'noon')", "'noon'", "timestamp must be a timestamp"),
        (f"{ADD_FILES}('a', 'b', 'k=v')", "'k=v'", "must be a map: map(ARRAY['key'], ARRAY['value'])"),
        (f"{ADD_FILES}('a', 'b', map(ARRAY['k'], ARRAY[]))", "ARRAY[])", "1 key(s) and 0 value(s)"),
        (f"{ADD_FILES}('a', 'b', map(ARRAY['k', 'K'], ARRAY['x', 'y']))", "'K'", "names 'k' twice"),
        (f"{ADD_FILES}('a', 'b', map(ARRAY['k'], ARRAY[true]))", "true", "must have strings as values"),
        (f"{ADD_FILES}('a', 'b', duplicate_file => 'drop')", "duplicate_file", "cannot be mixed"),
    ],
)
def test_an_argument_that_is_not_right_is_pointed_at(text: str, place: str, said: str) -> None:
    with pytest.raises(ProcedureArgumentError) as caught:
        parse_statement(text)
    assert said in str(caught.value)
    assert caught.value.position == text.index(place)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("CALL iceberg.system.migrat('a', 'b')", "iceberg", "unknown procedure iceberg.system.migrat; use one of ice"),
        ("CALL hive.system.migrate('a', 'b')", "hive", "one of iceberg.system.migrate, iceberg.system.revert"),
        ("CALL migrate('a', 'b')", "migrate", "unknown procedure migrate"),
        ("CALL iceberg.system.add_files_from_table('a', 'b')", "iceberg", "ALTER TABLE … EXECUTE add_files_from_tabl"),
        ("ALTER TABLE t EXECUTE optimize()", "optimize", "unknown table procedure optimize"),
        ("ALTER TABLE t EXECUTE revert('a', 'b')", "revert", "CALL iceberg.system.revert(…)"),
    ],
)
def test_a_procedure_that_there_is_not_is_pointed_at(text: str, place: str, said: str) -> None:
    with pytest.raises(UnknownProcedureError) as caught:
        parse_statement(text)
    assert said in str(caught.value)
    assert caught.value.position == text.index(place)


@pytest.mark.parametrize(
    ("type_name", "said"),
    [
        ("foo", "type foo is not known; use string"),
        ("decimal(39)", "1 to 38 digits"),
        ("decimal(5,6)", "1 to 38 digits"),
        ("char(0)", "length from 1 to 255"),
        ("varchar", "needs a length"),
        ("int(11)", "takes no size"),
        ("array", "array<string>"),
        ("map<string>", "map<type,type>"),
        ("array<foo>", "type foo is not known"),
        ("array<a:int>", "has no fields"),
    ],
)
def test_unknown_types_are_refused_at_their_place(type_name: str, said: str) -> None:
    with pytest.raises(UnknownTypeError) as caught:
        parse_statement(f"CREATE TABLE t (a {type_name})")
    assert said in str(caught.value)
    assert caught.value.position in (18, 24)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("STRING", "string"),
        ("Long", "bigint"),
        ("integer", "int"),
        ("SHORT", "smallint"),
        ("byte", "tinyint"),
        ("real", "float"),
        ("numeric(7 , 3)", "decimal(7,3)"),
        ("decimal", "decimal(10,0)"),
        ("VarChar(10)", "varchar(10)"),
        ("struct<`a b`: int, C:string>", "struct<`a b`:int,c:string>"),
    ],
)
def test_types_are_kept_under_one_name(written: str, kept: str) -> None:
    read = parse_statement(f"CREATE TABLE t (a {written})")
    assert isinstance(read, m.CreateTable)
    assert [column.type for column in read.columns] == [kept]


def test_names_that_cannot_be_used_are_refused_at_their_place() -> None:
    with pytest.raises(InvalidIdentifierError, match=r"'a\.b' contains") as caught:
        parse_statement("DROP TABLE `a.b`")
    assert caught.value.position == 11


PIECES = """
CREATE TABLE PARTITION ALTER DROP INTO t ( ) ( ) , , = '1' '(a,b)' 5 -1.5 NULL WITH DATA SPLIT ADD STORED
BY 'carbondata'
TBLPROPERTIES INSERT VALUES SELECT IF NOT EXISTS SET PARTITIONED VIEW AS SHOW PARTITIONS t WHERE array< > int string
-- /* */ ' ` `x` " \\ . ;
"""
WORDS = st.sampled_from(re.findall(r"\S+", PIECES))


@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=25).map(" ".join)))
def test_any_text_is_a_statement_or_an_error_of_its_own_class(text: str) -> None:
    with suppress(CatalogError):
        parse_statement(text)


@given(st.lists(WORDS, max_size=25).map(" ".join))
def test_every_syntax_error_points_into_the_text(text: str) -> None:
    try:
        parse_statement(text)
    except StatementSyntaxError as error:
        position = error.position
    except CatalogError:
        position = 0
    else:
        position = 0
    assert position is not None
    assert 0 <= position <= len(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t", "MERGE has no USING and the source"),
        ("t USING s", "MERGE has no ON and a condition"),
        ("t USING s ON a = b", "MERGE has no WHEN clause"),
        ("t USING s ON WHEN MATCHED THEN DELETE", "ON has no condition"),
        ("t USING (SELECT 1) ON a WHEN MATCHED THEN DELETE", "a query after USING needs an alias"),
        ("t USING u.t ON a WHEN MATCHED THEN DELETE", "target and source are both named t"),
        ("a.b.t USING s ON a WHEN MATCHED THEN DELETE", "expected a table and its alias"),
        ("t USING s ON a WHEN MATCHED THEN INSERT *", "WHEN MATCHED is followed by THEN UPDATE or DELETE"),
        (
            "t USING s ON a WHEN FOUND THEN DELETE",
            "a clause is WHEN MATCHED, WHEN NOT MATCHED, WHEN",
        ),
        ("t USING s ON a WHEN MATCHED DELETE", "MERGE has no THEN in a WHEN clause"),
        ("t USING s ON a WHEN MATCHED AND THEN DELETE", "AND has no condition"),
        ("t USING s ON a WHEN MATCHED THEN UPDATE a = 1", "UPDATE is followed by SET"),
        ("t USING s ON a WHEN MATCHED THEN UPDATE SET a", "a column has no value"),
        ("t USING s ON a WHEN MATCHED THEN DELETE 1", "nothing follows DELETE"),
        ("t USING s ON a WHEN NOT MATCHED THEN INSERT (a) VALUES (1, 2)", "INSERT has 1 columns and 2 values"),
        (
            "t USING s ON a WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE",
            "without a condition is followed",
        ),
    ],
)
def test_a_merge_that_lacks_a_part_is_refused(text: str, message: str) -> None:
    with pytest.raises(StatementSyntaxError, match=message):
        parse_statement(f"MERGE INTO {text}")
