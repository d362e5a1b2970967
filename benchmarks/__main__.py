"""The command line of the benchmarks, called by `make bench` and `make bench-trino`: `python -m benchmarks`."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

from rich.console import Console

from benchmarks import (
    adding,
    building,
    carbon,
    changing,
    chart,
    doors,
    executors,
    finding,
    large_loads,
    migrating,
    object_stores,
    pages,
    parsing,
    publishing,
    quality_pages,
    rebalancing,
    report,
    row_changes,
    small_loads,
    snapshots,
    trino,
    trino_planning,
    waiting,
)
from benchmarks.figures import BenchmarkError, Figure, save
from benchmarks.ground import Ground
from benchmarks.timing import Effort
from catalog.errors import CatalogError
from standalone.environment import REPOSITORY
from standalone.errors import StandaloneError

BENCHMARKS = (
    finding,
    doors,
    adding,
    building,
    changing,
    rebalancing,
    row_changes,
    publishing,
    snapshots,
    carbon,
    migrating,
    object_stores,
    executors,
    parsing,
    quality_pages,
    pages,
    waiting,
    small_loads,
    large_loads,
)
WITH_TRINO = (trino, trino_planning)
BY_NAME = {benchmark.__name__.rpartition(".")[-1]: benchmark for benchmark in (*BENCHMARKS, *WITH_TRINO)}
SCALES = {"full": (10_000, 100_000, 1_000_000), "small": (1_000, 10_000, 100_000)}
_LEAST_WIDTH = 130

HEADINGS = {what: heading for benchmark in (*BENCHMARKS, *WITH_TRINO) for what, heading in benchmark.HEADINGS.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; return the exit code, which is 0 also for missed goals, because times vary by machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="full", help="small takes a tenth of the partitions")
    parser.add_argument("--trino", action="store_true", help="only compare with Trino, which is downloaded")
    parser.add_argument("--only", metavar="NAME", choices=sorted(BY_NAME), nargs="+", help="run these benchmarks only")
    parser.add_argument("--home", type=Path, help="state folder; default: CALVE_HOME, or .calve in the repository")
    parser.add_argument("--chart", type=Path, help="copy the chart to this file, for instance docs/benchmark.svg")
    options = parser.parse_args(arguments)
    # Samples are in folders outside the warehouse.
    os.environ["CALVE_ALLOWED_LOCATIONS"] = "*"
    home = Path(options.home or os.environ.get("CALVE_HOME") or REPOSITORY / ".calve").resolve()
    logging.basicConfig(level=logging.WARNING, format="%(message)s ...")
    logging.getLogger("benchmarks").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    folder = home / ("bench-trino" if options.trino else "bench")
    benchmarks = [BY_NAME[name] for name in options.only or ()] or (WITH_TRINO if options.trino else BENCHMARKS)
    try:
        run(folder, SCALES[options.scale], Effort(), benchmarks)
    except (BenchmarkError, CatalogError, StandaloneError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if options.chart:
        shutil.copyfile(folder / "chart.svg", options.chart)
    return 0


def run(
    folder: Path, scales: Sequence[int], effort: Effort, benchmarks: Sequence[ModuleType] = BENCHMARKS
) -> list[Figure]:
    """Run benchmarks with these numbers of partitions, print the table, and write `latest.json` and `chart.svg`.

    Raises:
        BenchmarkError: Calve and a peer had different results.
        StandaloneError: PostgreSQL or Java cannot be started; the message says what to do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with Ground(folder / "databases", scales, effort) as ground:
        figures: list[Figure] = []
        for benchmark in benchmarks:
            figures.extend(benchmark.measure(ground))
            # After each of them, so that an error in a later one loses nothing.
            save(figures, folder / "latest.json")
    (folder / "chart.svg").write_text(chart.draw(figures, HEADINGS))
    console = Console(highlight=False, width=max(_LEAST_WIDTH, Console().width))
    report.show(figures, HEADINGS, console)
    console.print(f"\nAll figures: {folder / 'latest.json'}\nThe chart:   {folder / 'chart.svg'}", markup=False)
    return figures


def _exit_on_signal(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
