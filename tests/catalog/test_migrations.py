"""Hive tables become Iceberg tables in place, and Hive tables again."""

from __future__ import annotations

from catalog import Catalog
from tests.catalog.iceberg_tables import NAME, expected_rows, iceberg_rows, make_orders, migrate


def test_a_migrated_table_is_read_by_pyiceberg_from_the_same_database(catalog: Catalog, catalog_url: str) -> None:
    make_orders(catalog)
    report = migrate(catalog)
    assert iceberg_rows(catalog_url) == expected_rows()
    table = catalog.get_table(NAME)
    assert table.is_iceberg
    assert table.metadata_location == report["metadata_location"]
