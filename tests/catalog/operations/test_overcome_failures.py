"""Failures that need no attention any more: the same work has ended again since; on each database."""

from __future__ import annotations

from typing import Any

import pytest

from catalog import Catalog
from catalog.operations.records import OperationKind, OperationState

LOAD, STATEMENT, BUILD = OperationKind.ADD_PARTITIONS, OperationKind.RUN_STATEMENT, OperationKind.BUILD_INDEX
TABLE = "shop.a"


def end(catalog: Catalog, name: str, kind: OperationKind, request: dict[str, Any], *, succeeds: bool) -> None:
    catalog.operations.begin(name, kind, TABLE, request)
    if succeeds:
        with catalog.storage.write() as connection:
            catalog.operations.advance(connection, name, OperationState.CLEANED)
    else:
        catalog.operations.fail(name, "RUN_FAILED", "a file has a bad line")


@pytest.mark.parametrize(
    ("kind", "request_", "other"),
    [
        (STATEMENT, {"statement": "DELETE FROM shop.a WHERE day = 1"}, {"statement": "SELECT 1"}),
        (LOAD, {"source": "/in", "files": [1]}, {"source": "/in/late", "files": [1]}),
        (LOAD, {"source": ["/in", "/late"]}, {"source": ["/in"]}),
        (BUILD, {"index": "by_day"}, {"index": "by_country"}),
    ],
    ids=["statement", "load", "load of several sources", "index"],
)
@pytest.mark.parametrize("succeeds", [True, False])
def test_a_failure_is_overcome_by_the_end_of_the_same_work_only(
    catalog: Catalog, kind: OperationKind, request_: dict[str, Any], other: dict[str, Any], succeeds: bool
) -> None:
    def failed() -> list[str]:
        listed = catalog.operations.list(states=[OperationState.FAILED], with_overcome=False)
        return [operation.id for operation in listed if operation.id == "failed"]

    end(catalog, "failed", kind, request_, succeeds=False)
    end(catalog, "other", kind, other, succeeds=succeeds)
    assert failed() == ["failed"]
    end(catalog, "again", kind, {**request_, "files": [2]}, succeeds=succeeds)
    assert failed() == []


def test_an_operation_tells_whether_its_table_exists(catalog: Catalog) -> None:
    catalog.create_database("shop")
    catalog.create_table(TABLE, columns=[("id", "int")])
    for name, table in (("known", TABLE), ("unknown", "shop.b"), ("of no table", "default.(statements)")):
        catalog.operations.begin(name, STATEMENT, table, {"statement": name})
    listed = {operation.id: operation.table_exists for operation in catalog.operations.list()}
    assert listed == {"known": True, "unknown": False, "of no table": False}
    catalog.drop_table(TABLE)
    assert not catalog.operations.get("known").table_exists
