"""A condition sees one state of the tables in its subqueries, whatever others commit to them while it is evaluated."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from catalog import Catalog
from catalog.statements.session import Session
from spark_jobs.changing import row_changes, scheme_changes

pytestmark = pytest.mark.spark

TABLES = {
    "hive": "CREATE TABLE {} (id bigint, n int) PARTITIONED BY (k string) STORED AS PARQUET",
    "iceberg": "CREATE TABLE {} (id bigint, n int) PARTITIONED BY (k string) STORED AS ICEBERG",
    "scheme": "CREATE TABLE {} (id bigint, n int) PARTITIONED BY (k string) STORED BY 'carbondata' "
    "TBLPROPERTIES ('PARTITION_TYPE'='LIST', 'LIST_INFO'='a, b, x')",
}
STATEMENTS = {
    "delete": "DELETE FROM t WHERE id IN (SELECT id FROM s)",
    "update": "UPDATE t SET n = 1 WHERE id IN (SELECT id FROM s)",
    "delete by itself": "DELETE FROM t WHERE id IN (SELECT id + 3 FROM t WHERE k = 'a' UNION SELECT id FROM s)",
}


SECOND_EVALUATION = {"hive": 1, "iceberg": 1, "scheme": 2}
"""The reading of rows of the changed table after which the condition is evaluated again."""

ROWS = ((1, "a"), (1, "b"), (4, "b"), (7, "b"))


@pytest.mark.long
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_rows_equal_a_serial_order_of_the_statement_and_a_commit_to_another_table(
    session: Session, catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch, kind: str, statement: str
) -> None:
    def changed(hits: set[int]) -> list[tuple[int, int, str]]:
        if statement == "update":
            return sorted((number, int(number in hits), key) for number, key in ROWS)
        return sorted((number, 0, key) for number, key in ROWS if number not in hits)

    for name in ("t", "s"):
        session.execute(TABLES[kind].format(name))
    for number, key in ROWS:
        session.execute(f"INSERT INTO t VALUES ({number}, 0, '{key}')")
    session.execute("ALTER TABLE t COMPACT")
    session.execute("INSERT INTO s VALUES (4, 0, 'x')")
    calls = count(1)

    def after_a_commit(original: Any) -> Any:
        def replaced(*arguments: Any, **more: Any) -> Any:
            if next(calls) == SECOND_EVALUATION[kind]:
                with Catalog.open(catalog_url) as other:
                    client = Session(other, database="shop", start=lambda _: session._context.engine)
                    client.execute("INSERT INTO s VALUES (7, 0, 'x'), (1, 0, 'x')")
            return original(*arguments, **more)

        return replaced

    monkeypatch.setattr(row_changes, "rows_of", after_a_commit(row_changes.rows_of))
    monkeypatch.setattr(scheme_changes, "rows_of_files", after_a_commit(scheme_changes.rows_of_files))
    session.execute(STATEMENTS[statement])
    assert next(calls) > SECOND_EVALUATION[kind]
    rows = sorted((number, n, key) for number, n, key in session.execute("SELECT id, n, k FROM t").rows)
    assert rows in (changed({4}), changed({4, 7, 1}))
