"""Partitions whose locations engines spell in their way, `file:/…` for a folder on a local disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, NewPartition
from catalog.settings.table_config import TableConfig
from catalog.statements.loads import TableLoads
from catalog.statements.session import Session

if TYPE_CHECKING:
    from spark_jobs.statement_engine import SparkEngine

pytestmark = pytest.mark.spark

TABLE = "shop.t"


def rows(session: Session) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.execute("SELECT id, note, k FROM t").rows)


@pytest.mark.parametrize("folder", ["elsewhere", "t/k=1"])
@pytest.mark.parametrize("form", ["PARQUET", "CSV"])
def test_all_changes_find_the_files(
    session: Session,
    catalog: Catalog,
    start: Callable[[Catalog], SparkEngine],
    warehouse: Path,
    tmp_path: Path,
    folder: str,
    form: str,
) -> None:
    session.execute(f"CREATE TABLE t (id int, note string) PARTITIONED BY (k int) STORED AS {form}")
    place = warehouse / "shop" / folder
    place.mkdir(parents=True, exist_ok=True)
    catalog.add_partitions(TABLE, [NewPartition(("1",), f"file:{place}")])
    session.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (3, 'ann', 1)")
    source = tmp_path / "rows.csv"
    source.write_text("id,note,k\n4,d,1\n")
    loads = TableLoads(catalog, start=start)
    list(loads.load(TableConfig(TABLE, str(source), mode="append"), [str(source)]))
    assert rows(session) == [(1, "a", 1), (2, "b", 1), (3, "ann", 1), (4, "d", 1)]
    session.execute("UPDATE t SET note = 'c' WHERE id = 2")
    session.execute("DELETE FROM t WHERE id = 1")
    session.execute("CALL calve.system.forget(table => 'shop.t', where => 'note = ''ann''', at_once => true)")
    session.execute("ALTER TABLE t COMPACT")
    assert rows(session) == [(2, "c", 1), (4, "d", 1)]
    assert rows(session) == sorted(
        tuple(row) for row in session.execute("SELECT id, note, k FROM t WHERE k = 1 AND id > 0").rows
    )
