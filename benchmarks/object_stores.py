"""Loads, migrations and index builds of tables on S3, beside the same with local files."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.building import build_in_session
from benchmarks.day_tables import DayTable
from benchmarks.delaying_proxy import DelayingProxy
from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import BY_CATEGORY, Ground, create_table
from benchmarks.sample import LOCATION, TABLE, partitions
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import seconds
from catalog import Catalog, IndexState
from catalog.settings.environment import package_settings
from catalog.settings.spark_settings import with_storage
from standalone.object_store import RunningObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADINGS = {
    "object_store": "S3 with 20 ms a request ÷ local files: tables with one file in each partition; writing a load's "
    "files, registering them, migrating them to Iceberg; and an index build, which reads no files",
}
MOST_OF_LOCAL_BUILD = 1.1

DELAY_SECONDS = 0.02
BUCKET = "lake"
WARM_UP_FILES = 20
_BUILD = "build_index"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """The seconds of a step, and its requests to S3 by operation."""

    seconds: float
    requests: Counter[str]


@dataclass(frozen=True)
class _Request:
    """The arguments of the process with Spark.

    Attributes:
        url: The catalog of the loaded and migrated tables.
        build_urls: Place → the catalog with a table there, whose index is built.
        folder: The folder of the object store, the local tables and Spark.
        file_count: The number of files of a load.
    """

    url: str
    build_urls: dict[str, str]
    folder: Path
    file_count: int


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the seconds of each step on S3 and with local files, of one run each, and log the requests."""
    file_count, partition_count = ground.scales[0], ground.scales[-1]
    log.info("Loading %s files and indexing %s partitions on S3", f"{file_count:,}", f"{partition_count:,}")
    builds = {
        place: prepared_build(ground, f"build_{place}", location)
        for place, location in (("local", LOCATION), ("s3", f"s3://{BUCKET}{LOCATION}"))
    }
    url = url_of(ground.catalog(ground.postgresql, "object_stores"))
    with TemporaryDirectory(dir=ground.folder) as folder:
        request = _Request(url, builds, Path(folder), file_count)
        steps = in_new_process(ground.folder / "spark.log", _measured, request)
    for step, by_place in steps.items():
        requests = by_place["s3"].requests
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in requests.most_common())
        log.info("%s on S3: %.2f requests a file: %s", step, requests.total() / file_count, kinds or "none")
        yield Figure(
            name=f"object_store.{step}.{partition_count if step == _BUILD else file_count}.postgresql",
            ours=by_place["s3"].seconds,
            peer=by_place["local"].seconds,
            unit="s",
            runs=1,
            goal=MOST_OF_LOCAL_BUILD if step == _BUILD else None,
        )


def prepared_build(ground: Ground, name: str, location: str) -> str:
    """Return the URL of a new catalog with the sample at the largest scale, and an index to be built."""
    catalog = ground.catalog(ground.postgresql, name)
    create_table(catalog, location=location)
    catalog.add_partitions(TABLE, list(partitions(ground.scales[-1])))
    catalog.create_partition_index(TABLE, BY_CATEGORY.name, BY_CATEGORY.keys)
    ground.postgresql.settle(name)
    return url_of(catalog)


def build(spark: SparkSession, url: str) -> None:
    """Build the index of a prepared catalog.

    Raises:
        BenchmarkError: It is not complete.
    """
    with Catalog.open(url) as catalog:
        build_in_session(spark, catalog)
        if (state := catalog.get_partition_index(TABLE, BY_CATEGORY.name).state) is not IndexState.ACTIVE:
            raise BenchmarkError(f"the index built by Spark is {state}, expected ACTIVE")


def url_of(catalog: Catalog) -> str:
    """Return the URL of a catalog, with the password."""
    return catalog.storage.url.render_as_string(hide_password=False)


@contextmanager
def slow_store(folder: Path) -> Iterator[DelayingProxy]:
    """Start an S3 server with an empty bucket, which this process finds in its environment behind a slow proxy.

    Args:
        folder: A new folder for the objects.
    """
    folder.mkdir()
    with RunningObjectStore(folder) as store, DelayingProxy(store.url, DELAY_SECONDS) as proxy:
        store.client.create_bucket(Bucket=BUCKET)
        os.environ |= {**store.environment, "AWS_ENDPOINT_URL": proxy.url}
        yield proxy


def _measured(request: _Request) -> dict[str, dict[str, Measured]]:
    """Return step → place → what was measured there."""
    # The executors read the password from this variable.
    os.environ["CALVE_CATALOG_URL"] = request.url
    places = {"local": str(request.folder / "local"), "s3": f"s3://{BUCKET}"}
    steps: dict[str, dict[str, Measured]] = {}
    with slow_store(request.folder / "s3") as proxy:
        settings = with_storage(package_settings(database="postgresql"))
        with (
            session(request.folder / "spark", memory="2g", more=settings) as spark,
            Catalog.open(request.url) as catalog,
        ):
            for count in (WARM_UP_FILES, request.file_count):
                steps.clear()
                tables = {
                    place: DayTable(spark, catalog, f"bench.{place}_{count}", f"{folder}/{count}", count)
                    for place, folder in places.items()
                }
                for step in (DayTable.write, DayTable.register, DayTable.migrate):
                    steps[step.__name__] = {
                        place: _take(proxy, partial(step, table)) for place, table in tables.items()
                    }
            steps[_BUILD] = {
                place: _take(proxy, partial(build, spark, url)) for place, url in request.build_urls.items()
            }
    return steps


def _take(proxy: DelayingProxy, function: Callable[[], object]) -> Measured:
    proxy.take_counts()
    return Measured(seconds(function), proxy.take_counts())
