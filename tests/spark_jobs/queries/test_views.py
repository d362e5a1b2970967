"""Expansion of views in the text of queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from catalog import Catalog
from catalog.errors import InvalidTableError
from catalog.statements.session import Session
from spark_jobs.queries import views
from spark_jobs.queries.views import MAXIMUM_DEPTH, with_views

pytestmark = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


@pytest.fixture
def doubled(catalog: Catalog) -> Catalog:
    """A catalog with as many views as may be nested, of which each names the next one twice."""
    catalog.create_database("d")
    catalog.create_table("d.t", columns=[("a", "bigint")])
    with Session(catalog, database="d") as session:
        for number in range(MAXIMUM_DEPTH):
            below = f"v{number - 1}" if number else "t"
            session.execute(f"CREATE VIEW v{number} AS SELECT x.a FROM {below} x JOIN {below} y ON x.a = y.a")
    return catalog


def test_views_that_name_others_twice_have_a_limited_length(doubled: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = list[str]()
    nodes = views.nodes_of_text

    def counted(sql: str) -> Sequence[Any]:
        parsed.append(sql)
        return nodes(sql)

    monkeypatch.setattr(views, "nodes_of_text", counted)
    assert with_views(doubled, "SELECT * FROM d.v3", "d").count("`d`.t") == 16
    # A view is read once, however often others name it.
    assert len(parsed) == 5
    with pytest.raises(InvalidTableError, match=r"^view d\.v49 has more than 1,000,000 characters .* such as d\.v"):
        with_views(doubled, "SELECT * FROM d.v49", "d")
    many = ", ".join(f"d.v9 AS x{number}" for number in range(40))
    with pytest.raises(InvalidTableError, match=r"^the query has more than 1,000,000 characters .* such as d\.v9"):
        with_views(doubled, f"SELECT * FROM {many}", "d")


def test_a_long_query_needs_no_views(doubled: Catalog) -> None:
    long = f"SELECT '{'a' * 1_100_000}' FROM t, v0"
    assert with_views(doubled, long, "d").startswith(long.partition(" FROM")[0])
