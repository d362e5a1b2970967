"""Partition values that are not of their keys' types, as catalogs of earlier versions have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from catalog.storage.values import ValueEncoder


@contextmanager
def unfit_values() -> Iterator[None]:
    """Admit values that are not of their keys' types where no index is."""
    with patch("catalog.partitions.adding.ValueEncoder", lambda table, indexes, **_: ValueEncoder(table, indexes)):
        yield
