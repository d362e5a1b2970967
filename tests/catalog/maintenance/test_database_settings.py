"""`calve check` names settings of PostgreSQL that large catalogs need, and nothing of recommended ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from catalog import Catalog
from catalog.maintenance.checks import database
from catalog.maintenance.findings import FindingKind

LARGE_TABLES = ["calve_data_file", "calve_index_item", "calve_partition"]

Check = Callable[..., dict[str, str]]


@pytest.fixture
def execute(postgres_url: str) -> Iterator[Callable[[str], None]]:
    """A function that executes a statement in a catalog's database, whose settings are restored at the end."""

    def executed(statement: str) -> None:
        with Catalog.open(postgres_url) as catalog, catalog.storage.write() as connection:
            connection.execute(text(statement))

    yield executed
    executed("ALTER ROLE calve RESET ALL")
    executed("ALTER TABLE calve_partition RESET (autovacuum_vacuum_scale_factor)")


@pytest.fixture
def check(postgres_url: str, execute: Callable[[str], None]) -> Check:
    """A function that checks the catalog with a cost of pages, and returns the places that are found, and remedies."""

    def checked(page_cost: float = 1.1) -> dict[str, str]:
        execute(f"ALTER ROLE calve SET random_page_cost = {page_cost}")
        with Catalog.open(postgres_url) as catalog:
            found = catalog.maintenance.check().findings
        assert {finding.kind for finding in found} <= {FindingKind.SLOW_DATABASE}
        assert not any(finding.kind.is_damage for finding in found)
        return {place: finding.remedy for finding in found for place in finding.where}

    return checked


def test_recommended_settings_are_no_finding(check: Check) -> None:
    assert check() == {}


def test_the_cost_of_a_page_is_found(check: Check) -> None:
    ((place, remedy),) = check(page_cost=4).items()
    assert place == "random_page_cost = 4"
    assert "SET random_page_cost = 1.1" in remedy


def test_small_buffers_of_a_large_database_are_found(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_SIZE", text("SELECT 1024::bigint * 1024 * 1024"))
    ((place, remedy),) = check().items()
    assert place == "shared_buffers = 128 MB, the database has 1,024 MB"
    assert "a quarter of the server's memory" in remedy


def test_large_tables_that_are_seldom_vacuumed_are_found(
    check: Check, execute: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_MANY_ROWS", -1)
    assert sorted(check()) == LARGE_TABLES
    execute("ALTER TABLE calve_partition SET (autovacuum_vacuum_scale_factor = 0.02)")
    assert sorted(check()) == LARGE_TABLES[:2]
