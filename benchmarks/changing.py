"""Changes of partitions that move no rows: the catalog makes them without Spark."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator
from statistics import median

from benchmarks import listed_files
from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.spark_process import in_new_process
from benchmarks.timing import Effort, seconds, settled_garbage
from catalog import Catalog
from catalog.rebalancing.changes import AddPartitions, DropPartitions, MergePartitions, PartitionChange, SplitPartition
from catalog.schemes.ranges import RangeScheme

HEADINGS = {"change_catalog": "Changes of the catalog alone ÷ 50 ms: ranges of 10 files each, without Spark"}
MOST_MILLISECONDS = 50.0
COUNTS = (20, 1_000)
"""The numbers of partitions of the changed tables."""

_TABLE = "bench.ranges"
_FILES_A_PARTITION = 10
_WIDTH = 1_000
"""The width of a range."""

_ROWS = 1_000_000

_MAXIMUM_RUNS = 50

log = logging.getLogger(__name__)


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the time of each change, relative to the goal of 50 milliseconds."""
    for database in ground.databases:
        log.info("Changing partitions on %s", database.name)
        for count in COUNTS:
            catalog = ground.catalog(database, f"changing_{count}")
            folder = str(ground.folder / f"changing-{count}-{database.name}")
            url = catalog.storage.url.render_as_string(hide_password=False)
            times = in_new_process(ground.folder / "changing.log", _times, url, folder, count, ground.effort)
            for case, taken in times.items():
                yield Figure(
                    name=f"change_catalog.{case}.{count}.{database.name}",
                    ours=median(taken) * 1000,
                    peer=MOST_MILLISECONDS,
                    unit="ms",
                    runs=len(taken),
                    goal=1.0 if count == COUNTS[0] else None,
                )


def _times(url: str, folder: str, count: int, effort: Effort) -> dict[str, list[float]]:
    """Make all changes repeatedly, each time on an equal table; return the seconds of each.

    Raises:
        BenchmarkError: A change needed Spark, or imported it.
    """
    times: dict[str, list[float]] = {}
    with Catalog.open(url) as catalog:
        table = _Table(catalog, folder, count)
        with settled_garbage():
            once = seconds(lambda: table.change_all({}))
            for _ in range(max(effort.least_runs, min(_MAXIMUM_RUNS, int(effort.budget_seconds / once)))):
                table.change_all(times)
    if "pyspark" in sys.modules:
        raise BenchmarkError("a change without Spark has imported pyspark")
    return times


class _Table:
    """A table of ranges with entries of data files that do not exist."""

    def __init__(self, catalog: Catalog, folder: str, count: int) -> None:
        self._catalog = catalog
        self._operations = itertools.count()
        self._count = count
        bounds = tuple((number, str(number * _WIDTH)) for number in range(1, count + 1))
        scheme = RangeScheme("id", "bigint", (), count + 1, bounds)
        catalog.create_table(_TABLE, columns=[("id", "bigint"), ("amount", "bigint")], scheme=scheme, location=folder)
        self._add_files(*range(count))

    def _add_files(self, *numbers: int) -> None:
        """Add files to ranges, given by position; each file covers the first or the second half of its range."""
        values = (
            (low, low + _WIDTH // 2 - 1)
            for number, part in itertools.product(numbers, range(_FILES_A_PARTITION))
            for low in (number * _WIDTH + part % 2 * _WIDTH // 2,)
        )
        listed_files.load(self._catalog, _TABLE, f"load-{next(self._operations)}", values, _ROWS)

    @property
    def _scheme(self) -> RangeScheme:
        scheme = self._catalog.get_table(_TABLE).scheme
        assert isinstance(scheme, RangeScheme)
        return scheme

    def change_all(self, times: dict[str, list[float]]) -> None:
        """Make each change once; afterwards, the table has the same ranges and number of files."""
        middle = self._count // 2
        low, high = (str(number * _WIDTH) for number in (middle + 1, middle + 2))

        def take(case: str, change: PartitionChange) -> None:
            times.setdefault(case, []).append(seconds(lambda: self._change(change)))

        take("add_to_empty", AddPartitions((str((self._count + 1) * _WIDTH),)))
        self._add_files(self._count)
        take("drop_with_data", DropPartitions((self._scheme.ids[-1],), with_data=True))
        take("merge", MergePartitions(self._scheme.ids[middle + 1 : middle + 3]))
        take("split_that_fits", SplitPartition(self._scheme.ids[middle + 1], (low, high)))
        take("drop", DropPartitions((self._scheme.ids[middle + 1],)))
        self._change(SplitPartition(self._scheme.ids[middle + 1], (low, high)))

    def _change(self, change: PartitionChange) -> None:
        operation = f"change-{next(self._operations)}"
        if self._catalog.rebalancing.change_catalog(operation, _TABLE, change) is None:
            raise BenchmarkError(f"{change} needs Spark")
