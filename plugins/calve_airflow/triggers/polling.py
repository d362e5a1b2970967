"""Triggers that poll the catalog together: one query per class of triggers and interval, through one connection.

All triggers of a process share one thread and its catalog, so that thousands of them need no more of the database than
one. A catalog that cannot be reached is polled again, less often, for as long as `CALVE_JOB_PATIENCE_SECONDS` says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from catalog import Catalog

log = logging.getLogger(__name__)

_REST = 4
"""The pause between two polls is at least this multiple of the time that the last poll took."""

Key = TypeVar("Key", bound=Hashable)
State = TypeVar("State")
T = TypeVar("T")


class CatalogTrigger(BaseTrigger, Generic[Key, State]):
    """Trigger that fires once, when its object in the catalog reaches a state; the event is the trigger's arguments.

    The task that resumes reads the state again. It fires also when the catalog cannot be read: the task then gets the
    error and reports it.

    Args:
        poll_seconds: Seconds between two polls.
    """

    def __init__(self, poll_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow is not typed here
        self.poll_seconds = poll_seconds

    @property
    @abstractmethod
    def key(self) -> Key:
        """The object that the trigger waits for."""

    @classmethod
    @abstractmethod
    def read(cls, catalog: Catalog, keys: Collection[Key]) -> Mapping[Key, State]:
        """Return the states of many objects, with one query; those that do not exist are missing."""

    @abstractmethod
    def is_over(self, state: State | None) -> bool:
        """Return whether the wait is over; called after each poll, outside the event loop.

        Args:
            state: The state of the object; None if it does not exist.
        """

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """Return the arguments from which the triggerer recreates this trigger."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer recreates this trigger."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event."""
        await _Poll.wait_for(self)
        yield TriggerEvent(self.arguments())  # type: ignore[no-untyped-call]  # Airflow is not typed here


class _CatalogThread:
    """The only thread in which the triggers of this process use the catalog, which stays open between calls."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="calve-triggers")
        self._catalog: Catalog | None = None

    async def call(self, function: Callable[[Catalog], T]) -> T:
        """Return what a function of the catalog returns, outside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._call, function)

    def close_if_unused(self) -> None:
        """Close the catalog after the calls that were made before, if no trigger waits; the next call opens it."""
        if not _Poll.running:
            self._executor.submit(self._close)

    def _call(self, function: Callable[[Catalog], T]) -> T:
        from catalog import Catalog

        if self._catalog is None:
            self._catalog = Catalog.open()
        return function(self._catalog)

    def _close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


class _Poll:
    """The waiting triggers of one class and interval, and the task that polls the catalog for them."""

    running: ClassVar[dict[Hashable, _Poll]] = {}
    """Those of this process."""

    def __init__(self, kind: type[CatalogTrigger[Any, Any]], seconds: float) -> None:
        self._kind = kind
        self._seconds = seconds
        self._waiting: dict[CatalogTrigger[Any, Any], asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._poll_took = 0.0

    @classmethod
    async def wait_for(cls, trigger: CatalogTrigger[Any, Any]) -> None:
        """Wait until a trigger's wait is over, or the catalog cannot be read."""
        loop, kind = asyncio.get_running_loop(), type(trigger)
        group = loop, kind, trigger.poll_seconds
        poll = cls.running.setdefault(group, cls(kind, trigger.poll_seconds))
        poll._waiting[trigger] = loop.create_future()
        if poll._task is None or poll._task.done():
            poll._task = loop.create_task(poll._run())
        try:
            await poll._waiting[trigger]
        finally:
            del poll._waiting[trigger]
            if not poll._waiting:
                poll._task.cancel()
                del cls.running[group]
                _CATALOG.close_if_unused()

    async def _run(self) -> None:
        while True:
            waiting = list(self._waiting)
            try:
                ended = await self._ended(waiting)
            except Exception as error:
                for trigger in waiting:
                    self._end(trigger, error)
                ended = []
            for trigger in ended:
                self._end(trigger)
            await asyncio.sleep(max(self._seconds, _REST * self._poll_took))

    async def _ended(self, waiting: Sequence[CatalogTrigger[Any, Any]]) -> Sequence[CatalogTrigger[Any, Any]]:
        """Return the triggers whose wait is over. If the catalog stays unreadable for too long, these are all."""
        # Not in the event loop, which the import would block for a second.
        await asyncio.to_thread(import_module, "catalog")
        from catalog.errors import CatalogError
        from catalog.operations.patience import Patience

        def poll(catalog: Catalog) -> Sequence[CatalogTrigger[Any, Any]]:
            began_at = time.monotonic()
            states = self._kind.read(catalog, {trigger.key for trigger in waiting})
            ended = [trigger for trigger in waiting if _is_over(trigger, states.get(trigger.key))]
            self._poll_took = time.monotonic() - began_at
            return ended

        patience = Patience(f"{len(waiting):,} × {self._kind.__name__}")
        while True:
            try:
                return await _CATALOG.call(poll)
            except CatalogError as error:
                if not error.retryable:
                    return waiting
                try:
                    pause = patience.pause_after(error)
                except CatalogError:
                    return waiting
            await asyncio.sleep(pause)

    def _end(self, trigger: CatalogTrigger[Any, Any], error: Exception | None = None) -> None:
        # The trigger may have been cancelled during the poll.
        future = self._waiting.get(trigger)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _is_over(trigger: CatalogTrigger[Key, State], state: State | None) -> bool:
    """Return whether a trigger's wait is over, also because it failed to look: the task then looks itself."""
    try:
        return trigger.is_over(state)
    except Exception:
        log.exception("A trigger of %s ends its wait", trigger.key)
        return True


_CATALOG = _CatalogThread()


async def call_catalog(function: Callable[[Catalog], T]) -> T:
    """Return what a function of the catalog returns, called in the thread and connection that all triggers share."""
    try:
        return await _CATALOG.call(function)
    finally:
        _CATALOG.close_if_unused()
