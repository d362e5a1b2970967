"""Waiting for a catalog whose database is down for a while, for instance because it restarts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from catalog.errors import CatalogUnavailableError
from catalog.settings.environment import job_patience

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 15.0

log = logging.getLogger(__name__)

T = TypeVar("T")


def patiently(act: Callable[[], T], what: str, *, sleep: Callable[[float], None] = time.sleep) -> T:
    """Return what a function returns; call it again while the catalog cannot be reached.

    Args:
        act: A function that can be repeated after it could not reach the catalog.
        what: The work that waits meanwhile, for the log.

    Raises:
        CatalogUnavailableError: The catalog could not be reached for as long as `CALVE_JOB_PATIENCE_SECONDS` says.
    """
    began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
    while True:
        try:
            return act()
        except CatalogUnavailableError as error:
            left = job_patience() - (time.monotonic() - began)
            if left <= 0:
                raise
            log.warning("%s waits for the catalog, up to %.0f s more: %s", what, left, error)
        sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
