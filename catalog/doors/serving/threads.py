"""The threads in which an HTTP front door answers requests."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from catalog.errors.doors import TooManyRequestsError
from catalog.storage.interrupting import Task, begin

T = TypeVar("T")

_THREADS = 40
_AGAIN_SECONDS = 1.0


class RequestThreads:
    """A fixed number of threads.

    The thread of a request that runs out of time is interrupted at its statement in the database, or before its next
    one. Until then it is one of these threads, so that interrupted requests cannot pile up.
    """

    def __init__(self, threads: int = _THREADS) -> None:
        """Start no thread yet."""
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="request")
        self._interrupted: set[Future[Any]] = set()

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread, and return its result; interrupt it when the caller is cancelled.

        Raises:
            TooManyRequestsError: All threads are busy with requests that were interrupted.
        """
        if len(self._interrupted) >= self._threads:
            raise TooManyRequestsError(
                f"the server is busy with {self._threads} requests that have run out of time; try again later"
            )
        task, context = Task(), contextvars.copy_context()
        context.run(begin, task)
        future: Future[T] = self._pool.submit(context.run, function)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # Cancelling the wrapper cancels what has not begun.
            if not future.done():
                self._interrupted.add(future)
                future.add_done_callback(self._interrupted.discard)
                threading.Thread(target=_interrupt, args=(task, future), name="interrupt", daemon=True).start()
            raise


def _interrupt(task: Task, future: Future[Any]) -> None:
    while not future.done():
        task.interrupt()
        wait([future], timeout=_AGAIN_SECONDS)
