"""Changes of partitions that move only the affected rows."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.ranges import BareSpark, RangeTable
from benchmarks.spark_process import in_new_process, session
from benchmarks.timing import take_in_turn
from catalog import Catalog
from catalog.rebalancing.changes import DropPartitions, MergePartitions

HEADINGS = {
    "rebalance": "Rebalancing ÷ bare Spark: one of 20 ranges, beside reading, filtering and writing the same rows",
    "rebalance_whole": "Rebalancing ÷ writing the table anew: one of 20 ranges, beside all of them by Spark",
    "rebalance_flatness": "Rebalancing a large ÷ a small table: the same rows, with 4 times as many beside them",
}
MOST_OF_BARE = 1.15
MOST_OF_SMALL = 1.3

PARTITIONS, MORE_PARTITIONS = 20, 80
_CASES = {"split": ("one pass", "two passes"), "add": ("one pass", "two passes"), "merge": ("",), "drop": ("",)}
"""Changes, with the alternatives of plain Spark, of which the faster one counts."""

_MOVING = ("split", "add")
_PARTITIONS_OF_HALF_A_ROW = 2
"""The number of partitions of the largest scale for each row of a range: half a million rows at the full scale."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Request:
    """The arguments of the process with Spark.

    Attributes:
        runs, warm_ups: The numbers of measured runs of each change, and of unmeasured runs before them.
    """

    url: str
    folder: Path
    rows_a_range: int
    runs: int
    warm_ups: int


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield the time of each change against plain Spark, the whole table, and a table four times as large."""
    log.info("Rebalancing tables of %d and %d partitions", PARTITIONS, MORE_PARTITIONS)
    catalog = ground.catalog(ground.postgresql, "rebalancing")
    request = _Request(
        catalog.storage.url.render_as_string(hide_password=False),
        ground.folder / "rebalancing",
        max(100, ground.scales[-1] // _PARTITIONS_OF_HALF_A_ROW),
        runs=2 * ground.effort.least_runs - 1,
        warm_ups=2 * (ground.effort.least_runs - 1),
    )
    request.folder.mkdir()
    try:
        times = in_new_process(ground.folder / "spark.log", _times_in_spark, request)
    finally:
        shutil.rmtree(request.folder)
    for case, ways in _CASES.items():
        bare = min((times[f"{case}: bare, {way}"] for way in ways), key=median)
        yield Figure.of_runs(
            f"rebalance.{case}.{PARTITIONS}", times[case], bare, MOST_OF_BARE, times.get(f"{case}: limit")
        )
    for case in _CASES:
        yield Figure.of_runs(f"rebalance_whole.{case}.{PARTITIONS}", times[case], times["whole"], None)
    for case in _CASES:
        goal = MOST_OF_SMALL if case in _MOVING else None
        yield Figure.of_runs(f"rebalance_flatness.{case}.{MORE_PARTITIONS}", times[f"{case}: large"], times[case], goal)


def _times_in_spark(request: _Request) -> dict[str, list[float]]:
    """Return the seconds of all measurements, by name."""
    with session(request.folder, memory="2g") as spark, Catalog.open(request.url) as catalog:
        small, large = (
            RangeTable(spark, catalog, request.folder / str(count), count, request.rows_a_range)
            for count in (PARTITIONS, MORE_PARTITIONS)
        )
        bench = _Bench(small, large, BareSpark(spark, request.folder / "bare"))
        for number in range(1, request.warm_ups + request.runs + 1):
            if number == request.warm_ups + 1:
                bench.times.clear()
            bench.split(number)
            bench.merge(number)
            bench.drop(number)
            bench.add(number)
        for _ in range(2):
            bench.write_whole()
    return bench.times


class _Bench:
    """Makes each change on a small table, on a large table and with plain Spark, alternating."""

    def __init__(self, small: RangeTable, large: RangeTable, bare: BareSpark) -> None:
        self.times: dict[str, list[float]] = {}
        self._small, self._large, self._bare = small, large, bare

    def split(self, number: int) -> None:
        """Split a range that has not been split yet."""
        paths, cut = self._small.paths(*self._small.parts(number)), self._small.middle(number)
        self._take_in_turn(
            number,
            {
                "split": partial(self._small.split, number),
                "split: large": partial(self._large.split, number),
                "split: bare, one pass": partial(self._bare.write_in_one_pass, paths, cut),
                "split: bare, two passes": partial(self._bare.write_in_two_passes, paths, cut),
                "split: limit": partial(self._bare.write_without_spark, paths, cut),
            },
        )
        self._verify(cut)

    def merge(self, number: int) -> None:
        """Merge the parts, and split them as before; no file need be read, because none overlaps both parts."""
        parts, large_parts = self._small.parts(number), self._large.parts(number)
        paths = self._small.paths(*parts)
        self._take_in_turn(
            number,
            {
                "merge": partial(self._small.change, MergePartitions(parts)),
                "merge: large": partial(self._large.change, MergePartitions(large_parts)),
                "merge: bare, ": partial(self._bare.write_together, paths),
            },
        )
        self._small.split(number)
        self._large.split(number)

    def drop(self, number: int) -> None:
        """Drop the first part; its rows move to the second, and the table has the initial number of ranges again."""
        part, large_part = self._small.parts(number)[0], self._large.parts(number)[0]
        paths = self._small.paths(part)
        self._take_in_turn(
            number,
            {
                "drop": partial(self._small.change, DropPartitions((part,))),
                "drop: large": partial(self._large.change, DropPartitions((large_part,))),
                "drop: bare, ": partial(self._bare.write_together, paths),
            },
        )

    def add(self, number: int) -> None:
        """Add a range for half of the rows of the default partition, and another for the rest."""
        for table in (self._small, self._large):
            table.fill_default()
        paths, cut = self._small.paths(0), self._small.last_bound + self._small.rows_a_range // 2
        self._take_in_turn(
            number,
            {
                "add": self._small.add_half,
                "add: large": self._large.add_half,
                "add: bare, one pass": partial(self._bare.write_in_one_pass, paths, cut),
                "add: bare, two passes": partial(self._bare.write_in_two_passes, paths, cut),
            },
        )
        self._verify(cut)
        for table in (self._small, self._large):
            table.add_rest()

    def write_whole(self) -> None:
        """Write the small table with plain Spark."""
        paths = self._small.paths()
        self._take_in_turn(0, {"whole": partial(self._bare.write_ranges, paths, self._small.rows_a_range)})

    def _take_in_turn(self, number: int, functions: Mapping[str, Callable[[], object]]) -> None:
        """Measure each function, in an order that changes with each run."""
        self._bare.clear()
        take_in_turn(self.times, functions, number)

    def _verify(self, cut: int) -> None:
        """Check that both sides of a cut have the rows that plain Spark wrote.

        Raises:
            BenchmarkError: The rows differ.
        """
        ours = [self._bare.contents(paths) for paths in self._small.sides(cut)]
        bare = self._bare.sides()
        if ours != bare:
            raise BenchmarkError(f"{self._small.name}: below and from {cut} on are {ours}; plain Spark wrote {bare}")
