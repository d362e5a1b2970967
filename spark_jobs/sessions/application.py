"""A Spark application that runs the jobs of several steps, one after another, and ends when it is idle for long.

Each job has a session of its own, so that settings and temporary views of one are not seen by the next, and a log of
its own. A job that fails ends the application, so that its next attempt starts Spark again; but where jobs of several
operations share one, an error about tables or files, such as one that is damaged, only ends the job.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import CatalogError, CatalogUnavailableError, StorageError
from catalog.operations.applications import LONGEST_MS
from catalog.operations.job_requests import JobRequest, request_type
from catalog.operations.patience import patiently
from catalog.operations.records import APPLICATION_LOG, JobKey
from catalog.settings.environment import SessionScope, jobs_folder, session_idle_seconds, session_scope
from spark_jobs.sessions.kept_rows import drop_others, share
from spark_jobs.sessions.session import LOG_FORMAT, configure, log_to_stderr, run_attempt, start_spark

_WAITING = "the Spark application"
_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.1, 1.0
_COPY_SECONDS = 0.2
_OF_ACCESS = (CatalogUnavailableError, StorageError)
"""Errors of a catalog and of storages that do not answer, or not to the credentials with which Spark was started."""


JobFunction = Callable[[SparkSession, Catalog, Any], dict[str, Any] | None]


def run_jobs(
    application_id: str, job_function: Callable[[str], JobFunction], needed_later: Mapping[str, Sequence[str]]
) -> int:
    """Run the jobs that are handed over to an application, until it is idle for long or a job's error ends it.

    Args:
        application_id: The application, whose row names its first job.
        job_function: Returns the function of a script.
        needed_later: Script → modules that the jobs after it need, which are imported while Spark starts.

    Returns:
        The exit code: 0, or 1 if the error of a job ended the application.
    """
    log_to_stderr()
    with Catalog.open() as catalog:
        application = _Application(catalog, application_id, job_function, needed_later)
        try:
            while (job := application.next_job()) is not None:
                error = application.run(job)
                if error is not None and not application.outlives(error):
                    return 1
                application.become_idle(job)
        finally:
            application.end()
    return 0


class _Application:
    def __init__(
        self,
        catalog: Catalog,
        application_id: str,
        job_function: Callable[[str], JobFunction],
        needed_later: Mapping[str, Sequence[str]],
    ) -> None:
        self._catalog = catalog
        self._job_function = job_function
        self._needed_later = needed_later
        self._applications = catalog.operations.applications
        self._id = application_id
        self._scope, self._idle_seconds = session_scope(), session_idle_seconds()
        self._ends_at = time.monotonic() + LONGEST_MS / 1000
        self._output: Path | None = None
        self._spark: SparkSession | None = None

    def next_job(self) -> JobKey | None:
        """Wait for a job; return None if the application has to end."""
        began, pause = time.monotonic(), _POLL_SECONDS
        while True:
            application = patiently(lambda: self._applications.find(self._id), _WAITING)
            if application is None or application.job is not None:
                return None if application is None else application.job
            is_over = time.monotonic() > min(began + self._idle_seconds, self._ends_at) or not self._has_spark()
            if is_over and self._applications.close_if_idle(self._id):
                return None
            time.sleep(pause)
            if time.monotonic() - began > 10 * _LONGEST_POLL_SECONDS:
                pause = _LONGEST_POLL_SECONDS

    def run(self, job: JobKey) -> Exception | None:
        """Run a job with a log and a session of its own; return its error."""
        with self._logging(job):
            function = self._job_function(job.script)
            return run_attempt(self._catalog, job, request_type(job.script), function, self._session)

    def outlives(self, error: Exception) -> bool:
        """Return whether the error of a job is about its tables or files, so that jobs of others may follow."""
        is_about_tables = isinstance(error, CatalogError) and not isinstance(error, _OF_ACCESS)
        return self._scope is SessionScope.SHARED and is_about_tables

    def become_idle(self, job: JobKey) -> None:
        """Accept another job, unless the application is that of an operation that has no steps left."""

        def accept() -> None:
            if self._scope is SessionScope.LOAD and self._catalog.operations.get(job.operation_id).is_committed:
                self._applications.close(self._id)
            else:
                self._applications.become_idle(self._id)

        patiently(accept, _WAITING)

    def _has_spark(self) -> bool:
        """Return whether Spark runs: Python outlives the JVM that started it, and Spark stops without its master."""
        try:
            return self._spark is None or not self._spark.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError):
            return False

    def end(self) -> None:
        """Accept no more jobs, and stop Spark."""
        with suppress(Exception):
            self._applications.close(self._id)
        if self._spark is not None:
            self._spark.stop()

    @contextmanager
    def _logging(self, job: JobKey) -> Iterator[None]:
        """Log to the file of a job in the block; after it, the job's folder no longer refers to this process."""
        path = self._log_path(job)
        if path is None:
            yield
            return
        if self._output is None:
            # The first job: its log is the output of this process.
            self._output = path.with_name(APPLICATION_LOG)
            yield
            shutil.copyfile(path, path.with_name("copy"))
            path.with_name("copy").replace(path)
        else:
            with _copied(self._output, path), _logged_to(path):
                yield
        with suppress(OSError):
            path.with_name("free").touch()
            path.with_name("free").replace(path.with_name("lock"))

    @contextmanager
    def _session(self, request: JobRequest, settings: Mapping[str, str]) -> Iterator[SparkSession]:
        """Yield a session that shares only Spark's context with those of other jobs; start Spark for the first."""
        if self._spark is None:
            name = f"calve load of {request.table}" if self._scope is SessionScope.LOAD else "calve"
            # Meanwhile this thread only waits for the JVM. Later it sends it hundreds of short messages, and would
            # have to wait for Python's lock before each.
            names = self._needed_later.get(request.script, ())
            threading.Thread(target=_preload, args=names, name="imports", daemon=True).start()
            self._spark = start_spark(name, settings)
        drop_others(request.operation_id)
        spark = share(configure(self._spark.newSession()))
        # Else the libraries that ask for the session in use would get that of the first job.
        SparkSession._activeSession = spark
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
        try:
            yield spark
        finally:
            # Data frames of the ended job: sessions share the cache.
            with suppress(Exception):
                spark.catalog.clearCache()

    def _log_path(self, job: JobKey) -> Path | None:
        """Return the log of a job; None if it is not in this host's folder of jobs, as for a driver on a cluster."""
        row = self._catalog.operations.get_job(job.operation_id, job.step)
        path = Path(os.path.normpath(row.log_path)) if row and row.log_path and row.attempt == job.attempt else None
        is_own = path is not None and path.is_relative_to(jobs_folder()) and path.name == "log"
        return path if path is not None and is_own and path.parent.is_dir() else None


def _preload(*names: str) -> None:
    for name in names:
        # What cannot be imported fails where it is used.
        with suppress(Exception):
            import_module(name)


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Log to a file instead of the standard error."""
    root = logging.getLogger()
    before, handler = root.handlers[:], logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    root.handlers[:] = [handler]
    try:
        yield
    finally:
        root.handlers[:] = before
        handler.close()


@contextmanager
def _copied(source: Path, target: Path) -> Iterator[None]:
    """Copy what is appended to a file during the block, which is the output of Spark, to the end of another file."""
    ended = threading.Event()

    def copy() -> None:
        is_last = False
        while not is_last:
            is_last = ended.wait(_COPY_SECONDS)
            text = lines.read()
            # Whole lines, so that they are not mixed with those of the log.
            end = len(text) if is_last else text.rfind(b"\n") + 1
            lines.seek(end - len(text), os.SEEK_CUR)
            copied.write(text[:end])
            copied.flush()

    with source.open("rb") as lines, target.open("ab") as copied:
        lines.seek(0, os.SEEK_END)
        thread = threading.Thread(target=copy, name="log", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
