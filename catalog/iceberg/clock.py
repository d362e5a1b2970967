"""This host's clock, only for timestamps in files of other systems, such as Iceberg metadata.

Timestamps that the catalog compares come from its database (`catalog.storage.clock`).
"""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return this host's time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
