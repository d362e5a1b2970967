"""Partitions of tables with Athena's partition projection, which their source does not list: they are computed.

Athena reads each folder that the table's parameters describe. Of these partitions, an import adds those whose folders
exist.

Source: Amazon Athena user guide, "Set up partition projection" and "Supported types for partition projection".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from math import prod
from typing import NamedTuple, TypeAlias

from catalog.errors import UnsupportedSourceTableError
from catalog.files.filesystem import Folder, in_parallel
from catalog.metastores.types import HivePartition, HiveTable
from catalog.model.partition_names import partition_path

MAXIMUM_PROJECTED = 1_000_000
"""The greatest number of partitions that are looked for."""

_PAGE = 1_000
_NOW = re.compile(r"NOW\s*(?:([+-])\s*([0-9]+)\s*(YEAR|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND)S?)?")
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_FIELDS = {"yyyy": "%Y", "uuuu": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
"""Letters of Java's date formats → the directives of Python's, finest last."""

_UNITS = {"%Y": "YEARS", "%m": "MONTHS", "%d": "DAYS", "%H": "HOURS", "%M": "MINUTES", "%S": "SECONDS"}
_SECONDS = {"WEEKS": 604_800, "DAYS": 86_400, "HOURS": 3_600, "MINUTES": 60, "SECONDS": 1}
_MONTHS = {"MONTHS": 1, "YEARS": 12}
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


class _Values(NamedTuple):
    """The values of one key, in order."""

    size: int
    strings: Callable[[], Iterator[str]]


_Settings: TypeAlias = Mapping[str, str]


def is_projected(table: HiveTable) -> bool:
    """Return whether the partitions of a table are projected, so that its source lists none that Athena reads."""
    return bool(table.partition_keys) and table.parameters.get("projection.enabled", "").strip().lower() == "true"


def projected_partitions(table: HiveTable, location: str, now: datetime) -> Iterator[list[HivePartition]]:
    """Return the partitions of a table with partition projection whose folders exist, in pages.

    Settings are checked before the first page is asked for.

    Args:
        location: The location of the table.
        now: The time that `NOW` means in ranges of dates.

    Raises:
        UnsupportedSourceTableError: The partitions of a key cannot be computed, or are too many.
    """
    keys = [key.name for key in table.partition_keys]
    values = [_values(table, key, now) for key in keys]
    if (count := prod(of_key.size for of_key in values)) > MAXIMUM_PROJECTED:
        raise _refused(
            table, f"projects {count:,} partitions, and at most {MAXIMUM_PROJECTED:,} are computed; narrow the ranges"
        )
    rows = product(*(of_key.strings() for of_key in values))
    return _existing(table, rows, _folders(table, location, keys))


def _existing(
    table: HiveTable, rows: Iterator[tuple[str, ...]], folder_of: Callable[[Sequence[str]], str]
) -> Iterator[list[HivePartition]]:
    while page := list(islice(rows, _PAGE)):
        folders = [folder_of(row) for row in page]
        exist = in_parallel(lambda folder: Folder(folder).exists(), folders)
        yield [
            HivePartition(row, table.storage, location=folder)
            for row, folder, exists in zip(page, folders, exist, strict=True)
            if exists
        ]


def _folders(table: HiveTable, location: str, keys: Sequence[str]) -> Callable[[Sequence[str]], str]:
    template = table.parameters.get("storage.location.template")
    if template is None:
        return lambda row: f"{location}/{partition_path(keys, row)}"
    named = {name.lower() for name in _PLACEHOLDER.findall(template)}
    if missing := [key for key in keys if key.lower() not in named]:
        raise _refused(table, f"has a storage.location.template without ${{{missing[0]}}}; correct it in the source")

    def folder(row: Sequence[str]) -> str:
        texts = {key.lower(): text for key, text in zip(keys, row, strict=True)}
        return _PLACEHOLDER.sub(lambda match: texts.get(match[1].lower(), match[0]), template).rstrip("/")

    return folder


def _values(table: HiveTable, key: str, now: datetime) -> _Values:
    start = f"projection.{key}.".lower()
    settings = {name.lower().removeprefix(start): text for name, text in table.parameters.items()}
    kind = settings.get("type", "").strip().lower() if f"{start}type" in map(str.lower, table.parameters) else ""
    try:
        match kind:
            case "enum":
                strings = settings["values"].split(",")
                return _Values(len(strings), lambda: iter(strings))
            case "integer":
                return _integers(settings)
            case "date":
                return _dates(settings, now)
    except (KeyError, ValueError) as error:
        raise _refused(
            table, f"projects its key {key} as {kind}, but its settings cannot be read ({error}); correct {start}*"
        ) from None
    what = f"of type {kind}, whose values only a query gives" if kind == "injected" else f"of type {kind or 'none'}"
    raise _refused(
        table, f"projects its key {key} {what}, so that its partitions cannot be computed; add them in the source"
    )


def _integers(settings: _Settings) -> _Values:
    low, high = (int(text) for text in settings["range"].split(","))
    steps = range(low, high + 1, _positive(settings.get("interval", "1")))
    width = int(settings.get("digits", "0"))
    return _Values(len(steps), lambda: (f"{number:0{width + (number < 0)}d}" for number in steps))


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(f"interval {number} is less than 1")
    return number


def _dates(settings: _Settings, now: datetime) -> _Values:
    directives = _directives(settings["format"])
    fields = [field for field in _FIELDS.values() if field in directives]
    if "%Y" not in fields:
        raise ValueError("the format has no year")
    ends = [_moment(text.strip(), directives, now) for text in settings["range"].split(",")]
    low, high = ends
    step = _positive(settings.get("interval", "1"))
    if "interval.unit" not in settings and fields[-1] not in ("%m", "%d"):
        raise ValueError("interval.unit is missing")
    unit = settings.get("interval.unit", _UNITS[fields[-1]]).strip().upper()
    unit = unit if unit.endswith("S") else f"{unit}S"
    seconds, months = _SECONDS.get(unit, 0) * step, _MONTHS.get(unit, 0) * step
    if not seconds and not months:
        raise ValueError(f"interval.unit {unit} is not known")
    count = _count(low, high, seconds, months)
    written = "".join(directives)
    return _Values(
        count,
        lambda: (_later(low, number * months, number * seconds).strftime(written) for number in range(count)),
    )


def _count(low: datetime, high: datetime, seconds: int, months: int) -> int:
    if seconds:
        return max(0, (high - low) // timedelta(seconds=seconds) + 1)
    between = (high.year - low.year) * 12 + high.month - low.month
    count = max(0, between // months + 1)
    return count - (count > 0 and _later(low, (count - 1) * months, 0) > high)


def _later(moment: datetime, months: int, seconds: int) -> datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    first = moment.replace(day=1, year=year, month=month + 1)
    following = (first + timedelta(days=31)).replace(day=1)
    last = (following - timedelta(days=1)).day
    return first.replace(day=min(moment.day, last)) + timedelta(seconds=seconds)


def _directives(written: str) -> list[str]:
    """Return a format of Java as directives and strings of Python's."""
    directives, end = list[str](), 0
    for match in _TOKEN.finditer(written):
        text = match.group()
        if match.start() != end or (match[2] and text not in _FIELDS):
            raise ValueError(f"the format {written} has {text}, which is not computed")
        end = match.end()
        literal = (match[1].replace("''", "'") or "'") if match[1] is not None else text
        directives.append(_FIELDS[text] if match[2] else literal.replace("%", "%%"))
    if end != len(written):
        raise ValueError(f"the format {written} has an open quote")
    return directives


def _moment(text: str, directives: Sequence[str], now: datetime) -> datetime:
    """Return an end of a range, without what the format does not have."""
    written = "".join(directives)
    if match := _NOW.fullmatch(text):
        moment = now.astimezone(UTC).replace(tzinfo=None)
        if match[1]:
            number, unit = int(match[1] + match[2]), f"{match[3]}S"
            moment = _later(moment, _MONTHS.get(unit, 0) * number, _SECONDS.get(unit, 0) * number)
        text = moment.strftime(written)
    return datetime.strptime(text, written)


def _refused(table: HiveTable, reason: str) -> UnsupportedSourceTableError:
    return UnsupportedSourceTableError(f"table {table.name} {reason}")
