"""A cache of computed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAXIMUM_KEPT = 100_000


class Memo(dict[K, V]):
    """A dictionary that computes missing values from their keys; it is cleared when it reaches its maximum size."""

    def __init__(self, make: Callable[[K], V], *, most: int = MAXIMUM_KEPT) -> None:
        """Create an empty cache of the values that `make` returns.

        Args:
            most: The maximum size.
        """
        super().__init__()
        self._make = make
        self._most = most

    def __missing__(self, key: K) -> V:
        """Compute, store and return the value of a missing key."""
        value = self._make(key)
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value
