"""A cache of computed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MAXIMUM_KEPT = 100_000


class Memo(dict[K, V]):
    """A dictionary that computes missing values from their keys; it is cleared when it reaches its maximum size."""

    def __init__(self, make: Callable[[K], V]) -> None:
        """Create an empty cache of the values that `make` returns."""
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        """Compute, store and return the value of a missing key."""
        value = self._make(key)
        if len(self) >= _MAXIMUM_KEPT:
            self.clear()
        self[key] = value
        return value
