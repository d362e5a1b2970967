"""`calve check` finds nothing in manifest lists that Spark's Iceberg wrote, whatever the partition spec is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyiceberg.transforms import DayTransform, MonthTransform

from catalog import Catalog
from tests.support.iceberg_tables import sql_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SPEC = "bucket(4, id), truncate(1, name), years(day), hours(at), price"
VALUES = (
    "(1, 'ab', DATE '1960-01-01', TIMESTAMP '1950-05-01 12:00:00', 0.1D)",
    "(2, 'ä😀', DATE '2024-05-01', TIMESTAMP '2024-05-01 00:00:00', -1e300D)",
    "(3, NULL, NULL, NULL, double('NaN'))",
    "(NULL, '', DATE '9999-12-31', TIMESTAMP '2024-05-01 23:59:59', NULL)",
)


def test_nothing_is_found_in_tables_of_each_transform(catalog: Catalog, catalog_url: str, engine: SparkSession) -> None:
    engine.sql("CREATE NAMESPACE calve.lake")
    engine.sql(
        "CREATE TABLE calve.lake.t (id INT, name STRING, day DATE, at TIMESTAMP, price DOUBLE) USING iceberg "
        f"PARTITIONED BY ({SPEC})"
    )
    engine.sql(f"INSERT INTO calve.lake.t VALUES {', '.join(VALUES)}")
    with sql_catalog(catalog_url) as iceberg, iceberg.load_table("lake.t").update_spec() as spec:
        spec.remove_field("day_year").remove_field("at_hour")
        spec.add_field("day", MonthTransform(), "m").add_field("at", DayTransform(), "d")
    engine.sql("ALTER TABLE calve.lake.t ALTER COLUMN id TYPE BIGINT")
    engine.sql(f"INSERT INTO calve.lake.t VALUES {', '.join(VALUES)}")
    engine.sql("DELETE FROM calve.lake.t WHERE id = 1")
    engine.sql(f"INSERT INTO calve.lake.t VALUES {VALUES[0]}")
    assert catalog.maintenance.check().findings == ()
