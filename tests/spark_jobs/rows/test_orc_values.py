"""ORC files have the dates and timestamps that they were given, or these are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from catalog.errors import CatalogError
from catalog.statements.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

CHANGED = {
    "d": ("date", ["1582-10-05", "1582-10-14"], ["1582-10-04", "1582-10-15", "0001-01-01"]),
    "at": (
        "timestamp",
        ["1582-10-10 10:00:00", "1969-12-31 23:59:59.001", "1969-12-31 23:59:59.999999"],
        ["1582-10-03 10:00:00", "1582-10-16 10:00:00", "1969-12-31 23:59:59.000999", "1970-01-01 00:00:00"],
    ),
}
"""Column → its type, values that ORC changes, and values that it has."""
REFUSED = "would become another value in an ORC file"


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("name", CHANGED)
def test_orc_files_refuse_values_that_they_would_change(
    make_loader: Callable[..., Any], session: Session, tmp_path: Path, name: str
) -> None:
    kind, refused, kept = CHANGED[name]
    session.execute(f"CREATE TABLE t (n int, {name} {kind}) PARTITIONED BY (k int) STORED AS ORC")
    values = [f"({number}, '{text}', 1)" for number, text in enumerate(kept)]
    session.execute(f"INSERT INTO t VALUES {', '.join(values)}, (9, NULL, 1)")
    query = f"SELECT CAST({name} AS string) FROM t ORDER BY n"
    expected = [[text] for text in kept] + [[None]]
    assert [list(row) for row in session.execute(query).rows] == expected
    for text in refused:
        with pytest.raises(CatalogError, match=f"column {name}: '{text}' {REFUSED}.*such as Parquet"):
            session.execute(f"INSERT INTO t VALUES (8, '{text}', 1)")
    with pytest.raises(CatalogError, match=f"column {name}: '{refused[0]}' {REFUSED}"):
        session.execute(f"UPDATE t SET {name} = {kind.upper()}'{refused[0]}' WHERE n = 9")
    (tmp_path / "a.csv").write_text(f"n,{name},k\n8,{refused[-1]},2\n")
    with pytest.raises(Exception, match=f"column {name}: '{refused[-1]}' {REFUSED}"):
        make_loader("shop.t", {"k": "int"}).load(tmp_path / "a.csv", format="orc")
    assert [list(row) for row in session.execute(query).rows] == expected


@on_sqlite
def test_so_they_do_inside_of_others(session: Session, catalog: Catalog) -> None:
    columns = [("a", "array<struct<d:date>>"), ("m", "map<date,int>"), ("z", "timestamp_ntz"), ("n", "array<int>")]
    catalog.create_table("shop.t", columns=columns, format="orc")
    day = "DATE'{}'"
    row = f"array(named_struct('d', {day}), NULL), map({day}, 1), TIMESTAMP_NTZ'1582-10-10 10:00:00', array(1)"
    session.execute(f"INSERT INTO t SELECT {row.format('1582-10-04', '1582-10-04')}")
    session.execute("INSERT INTO t SELECT NULL, NULL, NULL, NULL")
    for name, days in {"a": ("1582-10-10", "1582-10-04"), "m": ("1582-10-04", "1582-10-10")}.items():
        with pytest.raises(CatalogError, match=f"column {name}: .*1582-10-10.*{REFUSED}"):
            session.execute(f"INSERT INTO t SELECT {row.format(*days)}")
    answer = session.execute("SELECT CAST(a[0].d AS string), CAST(z AS string) FROM t WHERE a IS NOT NULL")
    assert [list(row) for row in answer.rows] == [["1582-10-04", "1582-10-10 10:00:00"]]
