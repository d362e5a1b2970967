"""Batches of items for mapped tasks, of which Airflow allows only `[core] max_map_length`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

Batch = list[dict[str, str]]

FAILED_ITEMS = "failed_items"
"""The XCom of a task with the names of the items that failed, and the reasons: `demo.orders: the disk is full`."""


def map_limit() -> int:
    """Return the largest number of tasks that Airflow maps one task to."""
    from airflow.configuration import conf

    return int(conf.getint("core", "max_map_length", fallback=1024))


def in_batches(items: Sequence[dict[str, str]]) -> list[Batch]:
    """Split the arguments of mapped tasks into as many batches as Airflow allows: one item each, if that suffices."""
    size = max(1, ceil(len(items) / map_limit()))
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def all_items(batches: Sequence[Batch]) -> Batch:
    """Return the items of all batches, in order."""
    return [item for batch in batches for item in batch]


def name_of(item: Mapping[str, str], fields: Sequence[str]) -> str:
    """Return an item's values in the order of the fields: PostgreSQL does not keep the order of an XCom's keys."""
    return " ".join(str(item.get(field, "")) for field in fields)


def title_of(batch: Batch, fields: Sequence[str] = ("table",)) -> str:
    """Return the name of a mapped task in Airflow's UI: its item, or the first, the last and the number of them."""
    names = [name_of(item, fields) for item in batch]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"
