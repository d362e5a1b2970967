"""One cache of compiled SQL statements for all catalogs of a process, instead of one for each that a test opens."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.util import LRUCache

from catalog.storage import engine as module

_STATEMENTS = 20_000


def share_statements(patch: pytest.MonkeyPatch) -> None:
    """Have engines with the same options share a dialect, which is part of a statement's key, and a cache.

    To compile statements took a sixth of the time of tests that each open a catalog.
    """
    firsts: dict[str, Engine] = {}
    new_engine = module._new_engine

    def sharing(url: Any, **options: Any) -> Engine:
        engine = new_engine(url, **options)
        first = firsts.setdefault(f"{url.drivername} {sorted(options.items())}", engine)
        if first is engine:
            engine._compiled_cache = LRUCache(_STATEMENTS)
        engine.dialect = engine.pool._dialect = first.dialect
        engine._compiled_cache = first._compiled_cache
        return engine

    patch.setattr(module, "_new_engine", sharing)
