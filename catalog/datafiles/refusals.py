"""Warnings about commits of other engines that Calve cannot take in, of tables that can still be read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from catalog.errors import CatalogError

log = logging.getLogger(__name__)

_held: ContextVar[dict[str, None] | None] = ContextVar("held", default=None)
"""The messages that a block of `warnings_once` has collected, in their order; None outside."""


def warn(error: CatalogError) -> None:
    """Log that a table is read although Calve cannot take in what other engines have committed."""
    held = _held.get()
    if held is None:
        log.warning("%s", error)
    else:
        held[str(error)] = None


@contextmanager
def warnings_once() -> Iterator[None]:
    """Log each warning of a block once, at its end, unless the block fails with the same message."""
    held: dict[str, None] = {}
    token = _held.set(held)
    try:
        yield
    except CatalogError as error:
        held.pop(str(error), None)
        raise
    finally:
        _held.reset(token)
        for message in held:
            log.warning("%s", message)
