"""Two functions, timed in turn: whatever disturbs the machine meanwhile disturbs both."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

_MAXIMUM_RUNS = 200
_RUNS_FOR_ONE_WARM_UP = 4


@dataclass(frozen=True)
class Effort:
    """How often things are measured.

    Attributes:
        budget_seconds: For one pair; it is repeated as often as fits, up to 200 times.
        least_runs: How often at least, and how often what takes long.
    """

    budget_seconds: float = 2.0
    least_runs: int = 3


@dataclass(frozen=True)
class Pair:
    """Median seconds of ours and of the peer."""

    ours: float
    peer: float
    runs: int


def compare(ours: Callable[[], object], peer: Callable[[], object], effort: Effort) -> Pair:
    """Time two functions in turn, after one warm-up for every four runs."""
    with settled_garbage():
        once = seconds(ours) + seconds(peer)
        runs = max(effort.least_runs, min(_MAXIMUM_RUNS, int(effort.budget_seconds / once)))
        for _ in range(runs // _RUNS_FOR_ONE_WARM_UP):
            ours(), peer()
        pairs = [(seconds(ours), seconds(peer)) for _ in range(runs)]
    return Pair(median(pair[0] for pair in pairs), median(pair[1] for pair in pairs), runs)


def seconds(function: Callable[[], object]) -> float:
    """Return how long one call takes; what becomes of its result does not count."""
    started = time.perf_counter()
    result = function()
    ended = time.perf_counter()
    del result
    return ended - started


@contextmanager
def settled_garbage() -> Iterator[None]:
    """Leave what exists out of garbage collections: each side pays for collecting its own objects, and no others."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
