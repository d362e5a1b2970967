"""Partition values that are not of their keys' types, as catalogs of earlier versions have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from catalog.model import PartitionIndex, Table
from catalog.storage.values import ValueEncoder


@contextmanager
def unfit_values() -> Iterator[None]:
    """Admit values that are not of their keys' types where no index is."""

    def admitting(table: Table, indexes: Sequence[PartitionIndex] = (), **_: bool) -> ValueEncoder:
        return ValueEncoder(table, indexes)

    with ExitStack() as patches:
        for module in ("adding", "altering"):
            patches.enter_context(patch(f"catalog.partitions.{module}.ValueEncoder", admitting))
        yield
