"""One state of each table that a condition reads, however often a change of rows evaluates the condition."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Read = TypeVar("Read")

_READ: ContextVar[dict[Hashable, Any] | None] = ContextVar("calve_tables_of_subqueries", default=None)


@contextmanager
def one_state_in_subqueries() -> Iterator[None]:
    """Read the same rows of each table in the subqueries of the block's queries; also a decorator.

    What a change searches, and what it writes, must not differ by a commit to such a table in between. The changed
    table must be the first one of each query; it is read again for each.
    """
    token = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(token)


def is_one_state() -> bool:
    """Return whether this is called in a block of `one_state_in_subqueries`."""
    return _READ.get() is not None


def read_once(key: Hashable, read: Callable[[], Read]) -> Read:
    """Return what a function reads; in a block of `one_state_in_subqueries`, what was read first under a key."""
    known = _READ.get()
    if known is None:
        return read()
    if key not in known:
        known[key] = read()
    result: Read = known[key]
    return result
