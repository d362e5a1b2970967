"""The catalog of the API server's process."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar

from fastapi import Depends

from catalog import Catalog
from catalog.errors import CatalogError
from catalog.operations.records import Operation
from catalog.storage.upgrade import check_revision

log = logging.getLogger(__name__)

T = TypeVar("T")

_KEPT = 256


class KeptCatalog:
    """The catalog, opened by the first request that needs it.

    The server may run for months: its schema is checked again from time to time, so that pages change nothing in one
    that another version has upgraded.

    Args:
        check_seconds: The time after which the schema is checked again.
    """

    def __init__(self, check_seconds: float) -> None:
        self._check_seconds = check_seconds
        self._checked_at = -math.inf
        self._catalog: Catalog | None = None
        self._lock = threading.Lock()

    def get(self) -> Catalog:
        """Return the catalog.

        Raises:
            CatalogUnavailableError: It cannot be opened, or its schema is another version's.
        """
        with self._lock:
            if self._catalog is None:
                self._catalog = Catalog.open()
                self._checked_at = time.monotonic()
            catalog = self._catalog
            is_due = time.monotonic() - self._checked_at >= self._check_seconds
        if is_due:
            check_revision(catalog.storage)
            with self._lock:
                self._checked_at = time.monotonic()
        return catalog

    def close(self) -> None:
        """Close the catalog; the next request opens it again."""
        with self._lock:
            if self._catalog is not None:
                self._catalog.close()
            self._catalog = None


_OPEN = KeptCatalog(check_seconds=5)
open_catalog = _OPEN.get
"""Return the catalog, outside of a request; raises `CatalogUnavailableError` if it cannot be opened."""

close_catalog = _OPEN.close
"""Close the catalog; the next request opens it again."""


def find_operation(operation_id: str) -> Operation | None:
    """Return an operation, outside of a request; None if there is none of this id.

    Raises:
        CatalogUnavailableError: The catalog cannot be opened.
    """
    return open_catalog().operations.find(operation_id)


OpenCatalog = Annotated[Catalog, Depends(open_catalog)]
"""The catalog that `CALVE_CATALOG_URL` names, in a route's arguments.

Raises:
    CatalogUnavailableError: The catalog cannot be opened.
"""


class Remembered:
    """Results of queries that read much, kept for a while: many people look at the same page.

    Requests that ask for the same result at the same time share one query.

    Args:
        seconds: The age up to which a result is shown.
        stale_seconds: The age up to which it is still shown, while a thread makes it again.
    """

    def __init__(self, seconds: float, *, stale_seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._stale_seconds = stale_seconds
        self._results: dict[Hashable, tuple[float, Any]] = {}
        self._renewed: set[Hashable] = set()
        self._queries: dict[Hashable, Future[Any]] = {}
        self._changes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of a query, made again if the last one is too old."""
        with self._lock:
            made_at, result = self._results.get(key, (-math.inf, None))
            age = time.monotonic() - made_at
            is_shown = age < max(self._seconds, self._stale_seconds)
            is_renewed = is_shown and age >= self._seconds and key not in self._renewed
            if is_renewed:
                self._renewed.add(key)
        if is_renewed:
            threading.Thread(target=self._renew, args=(key, make), daemon=True).start()
        return result if is_shown else self._asked(key, make)

    def age(self, key: Hashable) -> float | None:
        """Return the age of the result that is shown, in seconds; None if none is kept."""
        with self._lock:
            kept = self._results.get(key)
        return None if kept is None else time.monotonic() - kept[0]

    def _asked(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of a query, or that of the same query that another request has begun."""
        with self._lock:
            # What was begun before a change may not show it.
            query_key = (key, self._changes)
            query: Future[T] | None = self._queries.get(query_key)
            if is_first := query is None:
                query = self._queries[query_key] = Future()
        if is_first:
            try:
                query.set_result(self._made(key, make))
            except BaseException as error:
                query.set_exception(error)
            finally:
                with self._lock:
                    del self._queries[query_key]
        return query.result()

    def _renew(self, key: Hashable, make: Callable[[], object]) -> None:
        try:
            self._made(key, make)
        except CatalogError as error:
            # The next request after `stale_seconds` shows it.
            log.warning("The pages show an older result: %s", error)
        finally:
            with self._lock:
                self._renewed.discard(key)

    def _made(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            changes = self._changes
        result = make()
        now, longest = time.monotonic(), max(self._seconds, self._stale_seconds)
        with self._lock:
            if changes != self._changes:
                # It may have been read before the change.
                return result
            if len(self._results) >= _KEPT:
                self._results.clear()
            self._results = {known: kept for known, kept in self._results.items() if now - kept[0] < longest}
            self._results[key] = (now, result)
        return result

    def forget(self) -> None:
        """Make all results again when they are asked for next: something has changed."""
        with self._lock:
            self._changes += 1
            self._results.clear()
