"""SHOW CREATE TABLE."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog, Table
from catalog.statements.session import Session
from tests.catalog.statements.test_session import rows, run
from tests.catalog.statements.test_session import session as session

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
    changing = ("id", "version", "created_at_ms", "live_location", "published_location")
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
