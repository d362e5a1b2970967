"""Timing of two functions in alternation, so that load on the machine affects both."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

_MAXIMUM_RUNS = 200
_RUNS_FOR_ONE_WARM_UP = 4


@dataclass(frozen=True)
class Effort:
    """The number of repetitions of measurements.

    Attributes:
        budget_seconds: The time for one pair, which is repeated up to 200 times within it.
        least_runs: The minimum number of runs, and the number for long measurements.
    """

    budget_seconds: float = 2.0
    least_runs: int = 3


@dataclass(frozen=True)
class Pair:
    """The median seconds of ours and of the peer."""

    ours: float
    peer: float
    runs: int


def compare(ours: Callable[[], object], peer: Callable[[], object], effort: Effort) -> Pair:
    """Time two functions in alternation, after one warm-up for every four runs."""
    with settled_garbage():
        once = seconds(ours) + seconds(peer)
        runs = max(effort.least_runs, min(_MAXIMUM_RUNS, int(effort.budget_seconds / once)))
        for _ in range(runs // _RUNS_FOR_ONE_WARM_UP):
            ours(), peer()
        pairs = [(seconds(ours), seconds(peer)) for _ in range(runs)]
    return Pair(median(pair[0] for pair in pairs), median(pair[1] for pair in pairs), runs)


def take_in_turn(times: dict[str, list[float]], functions: Mapping[str, Callable[[], object]], number: int) -> None:
    """Time each function once, and append its seconds to those of its name.

    Args:
        number: The number of the run, with which the order changes.
    """
    first = number % len(functions)
    in_order = list(functions.items())
    for name, function in (*in_order[first:], *in_order[:first]):
        times.setdefault(name, []).append(seconds(function))


def seconds(function: Callable[[], object]) -> float:
    """Return the seconds of one call, without the deletion of its result."""
    started = time.perf_counter()
    result = function()
    ended = time.perf_counter()
    del result
    return ended - started


@contextmanager
def settled_garbage() -> Iterator[None]:
    """Exclude existing objects from garbage collections, so that each side collects only its own objects."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
