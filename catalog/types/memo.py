"""Answers that are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MAXIMUM_KEPT = 100_000


class Memo(dict[K, V]):
    """A dictionary that makes a missing value from its key; it forgets all when it has grown large."""

    def __init__(self, make: Callable[[K], V]) -> None:
        """Take the function that makes a value."""
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        """Return the value of a key that is not there yet."""
        value = self._make(key)
        if len(self) >= _MAXIMUM_KEPT:
            self.clear()
        self[key] = value
        return value
