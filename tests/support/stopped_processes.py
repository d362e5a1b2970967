"""Processes of the tests of stopped builders and deleters: each stops itself with SIGSTOP at given points."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from catalog import Catalog
from catalog.errors import IndexBuildEndedError
from catalog.indexes import building
from catalog.indexes.definitions import IdRange

BUILD_ENDED = 3
"""The exit code of a builder whose index no longer exists."""


class Moment(StrEnum):
    """A point between two transactions."""

    BETWEEN_RANGES = "between two ranges of a build"
    BEFORE_COUNT = "before a build counts its items"
    BEFORE_END = "before a build makes its index ACTIVE"
    BEFORE_CLEARING = "after a deleter looked at what it will remove"
    BEFORE_ITEMS = "before a deleter removes the items"
    AFTER_ITEMS = "after a deleter removed the items"


def build(url: str, table: str, name: str, moments: Sequence[Moment]) -> None:
    """Build an index, and stop at given points."""
    _stop_at(moments)
    with Catalog.open(url) as catalog:
        try:
            catalog.build_partition_index(table, name)
        except IndexBuildEndedError:
            os._exit(BUILD_ENDED)


def delete(url: str, table: str, name: str, moments: Sequence[Moment]) -> None:
    """Delete an index, and stop at given points."""
    _stop_at(moments)
    with Catalog.open(url) as catalog:
        catalog.delete_partition_index(table, name)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _stop_at(moments: Sequence[Moment]) -> None:
    for moment in moments:
        match moment:
            case Moment.BETWEEN_RANGES:
                building.ranges_to_do = _with_stop_after_first(building.ranges_to_do)  # type: ignore[assignment]
            case Moment.BEFORE_COUNT:
                building.check_build = _stopping(building.check_build, before=True)
            case Moment.BEFORE_END:
                building.check_build = _stopping(building.check_build, before=False)
            case Moment.BEFORE_CLEARING:
                building._ended = _stopping(building._ended, before=False)
            case Moment.BEFORE_ITEMS:
                building.delete_all_items = _stopping(building.delete_all_items, before=True)
            case Moment.AFTER_ITEMS:
                building.delete_all_items = _stopping(building.delete_all_items, before=False)


def _stopping(function: Any, *, before: bool) -> Any:
    has_stopped = False

    def stop_once() -> None:
        nonlocal has_stopped
        if not has_stopped:
            has_stopped = True
            _stop()

    def run(*arguments: Any) -> Any:
        if before:
            stop_once()
        result = function(*arguments)
        if not before:
            stop_once()
        return result

    return run


def _with_stop_after_first(function: Any) -> Any:
    def run(*arguments: Any) -> Iterator[IdRange]:
        first, *others = function(*arguments)
        yield first
        _stop()
        yield from others

    return run
