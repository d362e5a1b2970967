"""Python's garbage collector, which looks for cycles among new objects each time that some hundred are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_once() -> Iterator[None]:
    """Have the collector look at the objects of the block after it, and not again and again while they are made.

    For blocks that make many objects without cycles, such as rows: to look at them takes as long as to make them.
    Threads that run meanwhile collect later, too; the collector is on again at the end, if it was on before.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
