"""One of the processes that serve: a catalog, and a thread for each front door."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from catalog.catalog import Catalog
from catalog.doors.serving.access import Access
from catalog.doors.serving.context import Serving
from catalog.doors.serving.limits import Limits
from catalog.doors.serving.listening import Certificate
from catalog.doors.serving.logs import log
from catalog.doors.serving.metrics import Metrics
from catalog.doors.serving.seen import SeenSignatures
from catalog.doors.serving.shared import SharedRecords
from catalog.errors import CatalogError, CatalogVersionError
from catalog.model.identifiers import DEFAULT_DATABASE
from catalog.operations.patience import patiently
from catalog.settings.environment import default_warehouse
from catalog.storage.upgrade import check_revision
from catalog.tables.moving import settle_all

READY = b"ready"
OUTDATED = 3
"""The exit code of a process that may not use the catalog, because its schema is of another version of Calve."""

_LOOK_SECONDS = 0.5
_SCHEMA_SECONDS = 2.0
"""How often a process looks whether another version of Calve has upgraded the catalog."""

Prepare = Callable[[Serving], Callable[[socket.socket], None]]
"""Prepares a door in a process, and returns the function that answers on a socket until `Serving.stop` is set."""


@dataclass(frozen=True)
class Assignment:
    """The work of one process.

    Attributes:
        count: The number of processes.
        doors: What prepares each door, with its listening socket.
        metrics: The folder of the metrics of all processes.
        seen: The signatures of requests that any process has seen.
        counts: The connections of the doors in all processes.
        rates: The rates of clients in all processes.
        life: The reading end of a pipe that is closed when the supervisor is gone.
        answer: The writing end of a pipe that takes `READY`, or what prevents the process from serving.
    """

    number: int
    count: int
    doors: Sequence[tuple[Prepare, socket.socket]]
    metrics: Path
    seen: SeenSignatures
    counts: SharedRecords
    rates: SharedRecords
    access: Access
    limits: Limits
    certificate: Certificate | None
    life: int
    answer: int


def work(assignment: Assignment) -> NoReturn:
    """Serve in a forked process until SIGTERM; never return to the code of the supervisor."""
    code = 1
    try:
        code = _work(assignment)
    except Exception:
        log.exception("a worker ends")
    finally:
        # Without the handlers and buffers that the process has inherited.
        os._exit(code)


def _work(assignment: Assignment) -> int:
    stop = threading.Event()
    # A terminal sends these to all processes; the supervisor passes on what is meant for this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Waited for below: a handler could interrupt a thread that holds the lock of `stop`.
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM})
    threading.Thread(target=_stop_with, args=(assignment.life, stop), daemon=True).start()
    try:
        catalog = patiently(Catalog.open, "the server", sleep=partial(_pause, stop))
    except _StoppedError:
        return 0
    except CatalogError as error:
        log.error("the catalog cannot be opened", extra={"fields": {"problem": str(error)}})
        _answer(assignment, str(error).encode())
        return OUTDATED if isinstance(error, CatalogVersionError) else 1
    with catalog:
        serving = _serving(assignment, catalog, stop)
        _create_default_database(catalog)
        _settle_moves(catalog)
        doors = [(prepare(serving), listener) for prepare, listener in assignment.doors]
        # What has been imported lives as long as the process, and is not looked at by each collection.
        gc.freeze()
        failed = threading.Event()
        threads = [threading.Thread(target=_run, args=(*door, stop, failed), daemon=True) for door in doors]
        for thread in threads:
            thread.start()
        outdated = threading.Event()
        threading.Thread(target=_watch_schema, args=(catalog, stop, outdated), daemon=True).start()
        _answer(assignment, READY)
        while not stop.is_set():
            if signal.sigtimedwait({signal.SIGTERM}, _LOOK_SECONDS) is not None:
                stop.set()
        until = time.monotonic() + assignment.limits.stop_seconds + 1.0
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return OUTDATED if outdated.is_set() else int(failed.is_set())


def _serving(assignment: Assignment, catalog: Catalog, stop: threading.Event) -> Serving:
    """Return what the doors of this process share."""
    certificate = assignment.certificate
    metrics = Metrics(assignment.metrics, assignment.number)
    catalog.searched = metrics.searched
    return Serving(
        catalog,
        metrics,
        access=assignment.access,
        limits=assignment.limits,
        tls=None if certificate is None else certificate.context(),
        stop=stop,
        seen=assignment.seen,
        process=assignment.number,
        processes=assignment.count,
        counts=assignment.counts,
        rates=assignment.rates,
    )


class _StoppedError(Exception):
    """The worker was told to stop while it waited for the catalog."""


def _pause(stop: threading.Event, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        # Also if the supervisor is gone.
        if stop.is_set() or signal.sigtimedwait({signal.SIGTERM}, min(left, _LOOK_SECONDS)) is not None:
            raise _StoppedError


def _run(
    serve: Callable[[socket.socket], None], listener: socket.socket, stop: threading.Event, failed: threading.Event
) -> None:
    try:
        serve(listener)
    except Exception:
        log.exception("a door ends")
    if not stop.is_set():
        failed.set()
        stop.set()


def _answer(assignment: Assignment, answer: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        # The supervisor waits for the first workers only.
        os.write(assignment.answer, answer[: select.PIPE_BUF])
    os.close(assignment.answer)


def _stop_with(life: int, stop: threading.Event) -> None:
    os.read(life, 1)
    stop.set()


def _watch_schema(catalog: Catalog, stop: threading.Event, outdated: threading.Event) -> None:
    """Stop the process when the catalog has another schema than it knows, which its requests could damage."""
    while not stop.wait(_SCHEMA_SECONDS):
        try:
            check_revision(catalog.storage)
        except CatalogVersionError as error:
            log.error("the catalog has another schema", extra={"fields": {"problem": str(error)}})
            outdated.set()
            stop.set()
        except CatalogError:
            # Requests report what is wrong, until the catalog is there again.
            continue


def _create_default_database(catalog: Catalog) -> None:
    """Create the database that Hive's clients expect, if there is a warehouse for its folder."""
    if default_warehouse() is None:
        return
    try:
        catalog.create_database(DEFAULT_DATABASE, if_not_exists=True)
    except CatalogError as error:
        log.warning("the database default was not created", extra={"fields": {"problem": str(error)}})


def _settle_moves(catalog: Catalog) -> None:
    """Move folders back that a killed process, which this one may replace, has moved without committing its rename."""
    try:
        settle_all(catalog.storage)
    except CatalogError as error:
        log.warning("the folder of an interrupted rename did not return", extra={"fields": {"problem": str(error)}})
