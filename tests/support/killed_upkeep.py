"""A process with Iceberg's Spark extensions in which the maintenance of a table is interrupted after each commit."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from catalog import Catalog
from catalog.errors import CatalogError
from catalog.iceberg.jdbc import EXTENSIONS, catalog_settings
from catalog.maintenance.iceberg_upkeep import TableMaintenance
from catalog.operations.failpoints import DIE_AT, Point
from catalog.operations.job_requests import MaintainIcebergJob
from catalog.operations.records import OperationKind
from catalog.settings.environment import package_settings
from tests.support.iceberg_tables import NAME, sql_catalog


class Died(BaseException):
    """Simulates the end of the process: `except Exception` does not catch it."""


def main(urls: Sequence[str]) -> None:
    """Change the partition specs of a table in each catalog; print the interruptions and results as JSON."""
    from pyspark.sql import SparkSession

    settings = EXTENSIONS
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for url in urls:
        with Catalog.open(url) as catalog:
            database = catalog.storage.url.get_backend_name()
            drivers = package_settings(database=database)["spark.jars.packages"]
            settings = {**settings, **catalog_settings(catalog.storage.url)}
        packages = {*drivers.split(","), *settings.get("spark.jars.packages", drivers).split(",")}
        settings["spark.jars.packages"] = ",".join(sorted(packages))
    spark = builder.config(map=settings).config("spark.driver.host", "127.0.0.1").getOrCreate()
    for url in urls:
        with Catalog.open(url) as catalog:
            session = spark.newSession()
            for name, value in catalog_settings(catalog.storage.url).items():
                session.conf.set(name, value)
            print(json.dumps(_change_specs(session, catalog, url)))


def _change_specs(session: object, catalog: Catalog, url: str) -> dict[str, object]:
    from spark_jobs.maintain_iceberg import maintain_iceberg

    changes = ["ADD PARTITION FIELD bucket(4, id)", "DROP PARTITION FIELD country"]
    changes += ["REPLACE PARTITION FIELD year WITH truncate(10, year)", "ADD PARTITION FIELD country AS land"]
    form = {"tables": [NAME], "partition_fields": changes, "rewrite_data_files": False, "expire_snapshots": False}
    catalog.operations.begin("upkeep", OperationKind.MAINTAIN_ICEBERG, NAME)

    def run(operation: str, statements: Sequence[str], table: str = NAME) -> dict[str, Any]:
        job = MaintainIcebergJob(operation_id=operation, step="m", attempt=1, table=table, statements=statements)
        return maintain_iceberg(session, catalog, job)  # type: ignore[arg-type]

    statements = list(TableMaintenance.read(form).statements(NAME, None))  # type: ignore[arg-type]
    deaths = 0
    for _ in statements:
        with (
            patch.dict(os.environ, {DIE_AT: Point.COMMITTED}),
            patch("catalog.operations.failpoints.die", side_effect=Died),
        ):
            try:
                run("upkeep", statements)
            except Died:
                deaths += 1
    answers = run("upkeep", statements)["answers"]
    with sql_catalog(url) as iceberg:
        spec = iceberg.load_table(NAME).spec()
        fields = [f"{field.transform} {field.name}" for field in spec.fields if str(field.transform) != "void"]
    # A statement that no earlier attempt committed fails in every attempt.
    catalog.operations.begin("wrong", OperationKind.MAINTAIN_ICEBERG, NAME)
    errors = []
    for _ in range(2):
        try:
            run("wrong", statements[:1])
        except CatalogError as error:
            errors.append(str(error))
    orphans, expired = _remove_orphans(catalog, run), _expire(session, catalog, run)
    return {
        **{"deaths": deaths, "answers": answers, "fields": fields, "errors": errors},
        **{"orphans": orphans, "expired": expired},
    }


def _remove_orphans(catalog: Catalog, run: Callable[[str, Sequence[str]], dict[str, Any]]) -> dict[str, Any]:
    """Remove 50 orphan files; return the result, and the number of remaining ones."""
    folder = Path(catalog.get_table(NAME).location)
    for number in range(50):
        orphan = folder / f"orphan-{number}.parquet"
        orphan.touch()
        os.utime(orphan, (0, 0))
    form = {"tables": [NAME], "rewrite_data_files": False, "expire_snapshots": False, "remove_orphan_files": True}
    catalog.operations.begin("orphans", OperationKind.MAINTAIN_ICEBERG, NAME)
    statements = list(TableMaintenance.read(form).statements(NAME, datetime.now(UTC)))
    (answer,) = run("orphans", statements)["answers"]
    left = sum(1 for _ in folder.glob("orphan-*"))
    return {"rows": len(answer["rows"]), "row_count": answer["row_count"], "left": left}


def _expire(session: Any, catalog: Catalog, run: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Expire snapshots in attempts that are killed, and in another; return the remaining files and snapshots."""
    folder = Path(catalog.get_table(NAME).location)
    foreign = folder.parent / "foreign.parquet"
    own = next(folder.rglob("*.parquet"))
    foreign.write_bytes(own.read_bytes())
    added = f"`parquet`.`{foreign}`"
    session.sql(f"CREATE TABLE calve.demo.apart (id bigint, note string) USING iceberg LOCATION '{folder}-apart'")
    session.sql(f"CALL calve.system.add_files(table => 'demo.apart', source_table => '{added}')")
    for name in ("apart", "orders"):
        session.sql(f"DELETE FROM calve.demo.{name}")
    form = {"rewrite_data_files": False, "older_than_days": 0}
    deaths = 0
    for name in ("demo.apart", NAME):
        soon = datetime.now(UTC) + timedelta(minutes=1)
        statements = list(TableMaintenance.read({**form, "tables": [name]}).statements(name, soon))
        catalog.operations.begin(f"expire-{name}", OperationKind.MAINTAIN_ICEBERG, name)
        for point in (Point.FILES_DELETED, Point.COMMITTED):
            with (
                patch.dict(os.environ, {DIE_AT: point}),
                patch("catalog.operations.failpoints.die", side_effect=Died),
            ):
                try:
                    run(f"expire-{name}", statements, name)
                except Died:
                    deaths += 1
        run(f"expire-{name}", statements, name)
    return {
        "deaths": deaths,
        "own": sum(1 for _ in folder.rglob("*.parquet")),
        "foreign": foreign.exists(),
        "snapshots": session.sql("SELECT * FROM calve.demo.orders.snapshots").count(),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
