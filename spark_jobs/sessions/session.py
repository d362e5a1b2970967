"""Common part of all job scripts: request, session, heartbeats, and result or error."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import CatalogError, FencedError, PlanConflictError
from catalog.files.object_stores import COMMIT_PROTOCOL, committer_settings, known_cause_in_spark
from catalog.iceberg.pointers import find_pointer
from catalog.model.identifiers import TableName
from catalog.operations.job_requests import JobRequest
from catalog.operations.patience import patiently
from catalog.operations.records import JobKey, JobState, Operation, OperationState
from spark_jobs.sessions.executors import prepare_executors, submitted_settings
from spark_jobs.sessions.java_classes import keep_classes
from spark_jobs.sessions.packages import has_class

HEARTBEAT_SECONDS = 5.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"

_RECORDING = "the record of the job's end"
_MESSAGE_LENGTH = 2_000
_MISSING = ("FILE_NOT_EXIST", "java.io.FileNotFoundException", "org.apache.iceberg.exceptions.NotFoundException")
"""Words in the errors of Spark and of Iceberg's runtime about a file that does not exist."""
_STACK_FRAMES = re.compile(r"\n\s+(at |\.\.\. \d+ more).*")

log = logging.getLogger(__name__)

Request = TypeVar("Request", bound=JobRequest)


def run_job(
    request_type: type[Request],
    function: Callable[[SparkSession, Catalog, Request], dict[str, Any] | None],
    arguments: Sequence[str] | None = None,
    *,
    settings: Callable[[Catalog], Mapping[str, str]] | None = None,
) -> int:
    """Run a job's function for a request, and record its result or error in the catalog.

    A function that records its result in the transaction of its own commit returns None.

    Args:
        settings: Returns additional settings of the session, including secrets, because Spark redacts in the events of
            its jobs only the settings that it was started with.
        arguments: The operation's id, the step and the number of the attempt, whose request the catalog has; by default
            those of the command line, which has no more, because all users of the host can read it.

    Returns:
        The exit code: 0, or 1 if the job failed.
    """
    log_to_stderr()
    operation_id, step, attempt = sys.argv[1:] if arguments is None else arguments
    job = JobKey(operation_id, step, int(attempt), request_type.script)
    with Catalog.open() as catalog:
        error = run_attempt(catalog, job, request_type, function, spark_session, settings=settings)
        return 0 if error is None else 1


def log_to_stderr() -> None:
    """Log the messages of jobs, and the warnings of all others, to the standard error."""
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    logging.getLogger("spark_jobs").setLevel(logging.INFO)


def run_attempt(
    catalog: Catalog,
    job: JobKey,
    request_type: type[Request],
    function: Callable[[SparkSession, Catalog, Request], dict[str, Any] | None],
    session: Callable[[Request, Mapping[str, str]], AbstractContextManager[SparkSession]],
    *,
    settings: Callable[[Catalog], Mapping[str, str]] | None = None,
) -> Exception | None:
    """Run a job's function for the request of an attempt, and record its result or error in the catalog.

    Args:
        session: Returns the session, given the request and settings with which Spark has to start.
        settings: As for `run_job`.

    Returns:
        The error; None if the job succeeded.
    """
    attempt = job.operation_id, job.step, job.attempt
    try:
        read = partial(catalog.operations.job_request, *attempt)
        request = request_type.from_json(patiently(read, "the start of the job"))
        alive = Heartbeat(catalog, request, ends_process=True)
        conf = {**submitted_settings(catalog.storage.url), **(settings(catalog) if settings else {})}
        with alive as life, session(request, conf) as spark, life.watching(spark):
            result = function(spark, catalog, request)
        if result is not None:
            patiently(partial(catalog.operations.finish_job, *attempt, result), _RECORDING)
    except Exception as error:
        _log_failure(error)
        fail = partial(catalog.operations.fail_job, *attempt, type(error).__name__, _message(error))
        patiently(fail, _RECORDING)
        return error
    return None


def finish_operation(catalog: Catalog, job: JobRequest, result: Mapping[str, Any]) -> None:
    """Record the result of a job, and that its operation has nothing left to do, in one transaction."""
    with catalog.storage.write() as connection:
        catalog.operations.finish_job(job.operation_id, job.step, job.attempt, result, connection=connection)
        catalog.operations.advance(connection, job.operation_id, OperationState.CLEANED)


def _log_failure(error: Exception) -> None:
    """Log an error; a catalog error without its cause, in which Spark repeats the statement with its literals."""
    if isinstance(error, CatalogError):
        log.error("The job failed: %s: %s", type(error).__name__, error)
    else:
        log.exception("The job failed")


def _message(error: BaseException) -> str:
    """Return the message of an error; for those of the JVM, with its causes, but without the stack."""
    text = str(error) or type(error).__name__
    if isinstance(error, CatalogError):
        return text
    return known_cause_in_spark(text) or _STACK_FRAMES.sub("", text)[:_MESSAGE_LENGTH]


def spark_session(request: JobRequest, settings: Mapping[str, str]) -> SparkSession:
    """Return the session of a job that has Spark for itself."""
    return configure(start_spark(f"calve {request.step} {request.table}", settings))


def start_spark(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start Spark with this name of the application; spark-submit provides the master and other settings."""
    builder = SparkSession.builder.appName(name)
    return builder.config(map={**settings, "spark.ui.showConsoleProgress": "false"}).getOrCreate()


def configure(spark: SparkSession) -> SparkSession:
    """Apply the settings that the jobs' functions need to a session, however it was started, and return it."""
    # A file that cannot be read is an error, also where a setting of the host or of the table says otherwise.
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "false")
    # Partition values are strings; the catalog knows their types.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    # With pruning, Spark does not detect lines with missing or unreadable fields.
    spark.conf.set("spark.sql.csv.parser.columnPruning.enabled", "false")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    # Literals of filters reach the readers of files as the days and instants that they are: as Java's older classes,
    # those of the ten days in October 1582 that these do not have become others.
    spark.conf.set("spark.sql.datetime.java8API.enabled", "true")
    # Strings such as `${env:PASSWORD}` in statements and values are data, which Spark must not substitute.
    spark.conf.set("spark.sql.variable.substitute", "false")
    # A task writes its files one after another, and on S3 waits for each: so also many small files need several tasks.
    spark.conf.set("spark.sql.adaptive.coalescePartitions.minPartitionSize", "16k")
    # HotSpot compiles no method of more than 8,000 bytes, so by Spark's default, which generates larger ones, wide
    # expressions such as the checks of a load are interpreted, and take twice the time. Source: Spark's documentation.
    spark.conf.set("spark.sql.codegen.hugeMethodLimit", "8000")
    # A cached frame of few rows need not have as many partitions as a shuffle has by default.
    spark.conf.set("spark.sql.optimizer.canChangeCachedPlanOutputPartitioning", "true")
    if has_class(spark, COMMIT_PROTOCOL):
        for name, value in committer_settings().items():
            spark.conf.set(name, value)
    # Errors arrive as exceptions; these loggers would log plans with the literals of statements.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).disabled = True
    keep_classes(spark.sparkContext)
    prepare_executors(spark.sparkContext)
    return spark


@contextmanager
def attempt_here(catalog: Catalog, operation: Operation, step: str) -> Iterator[int]:
    """Run a step of an operation in the caller's process, with heartbeats; yield the attempt's number.

    An error ends the operation, so that it unlocks its table; the same call continues it. If the attempt is fenced,
    its Spark jobs are cancelled; the caller's process and its other Spark jobs continue.

    Raises:
        FencedError: The attempt was fenced while it ran.
        OperationConflictError: The operation has failed, and another one is running on the table.
        PlanConflictError: Another engine has committed to the table, and deleted a file that the attempt reads.
    """
    operations = catalog.operations
    with operations.failing(operation.id, _message), operations.attempt(operation.id, step) as attempt:
        request = JobRequest(operation_id=operation.id, step=step, attempt=attempt, table=operation.table)
        with Heartbeat(catalog, request), _overtaken(catalog, operation):
            yield attempt


@contextmanager
def _overtaken(catalog: Catalog, operation: Operation) -> Iterator[None]:
    """Translate an error about a missing file to a conflict if another engine has committed to the table meanwhile.

    Engines that expire snapshots delete the files of these at once, and an attempt may still read them.

    Raises:
        PlanConflictError: Another engine has committed to the table, and deleted a file that the attempt reads.
    """
    before = _pointer(catalog, operation.table)
    try:
        yield
    except (PySparkException, Py4JError, CatalogError) as error:
        if not _is_about_missing_file(error) or _pointer(catalog, operation.table) == before:
            raise
        if catalog.operations.get(operation.id).is_committed:
            raise
        raise PlanConflictError(
            f"table {operation.table}: another engine has committed, and deleted files that were still being read; "
            "nothing was changed. Run the statement or load again"
        ) from error


def _pointer(catalog: Catalog, table: str) -> str | None:
    """Return the location of the table's metadata in the Iceberg catalog; None if it has none."""
    with catalog.storage.read() as connection:
        return find_pointer(connection, *TableName.parse(table))


def _is_about_missing_file(error: Exception) -> bool:
    causes = (error, error.__cause__)
    return any(isinstance(cause, FileNotFoundError) for cause in causes) or any(map(str(error).__contains__, _MISSING))


@dataclass(frozen=True)
class Progress:
    """Progress of an attempt in a part of its work.

    Attributes:
        done: Returns the number of finished items; called from another thread.
        total: Number of all items.
        note: The name of the items, such as `files`.
    """

    done: Callable[[], int]
    total: int
    note: str


@contextmanager
def reporting(progress: Progress) -> Iterator[None]:
    """Report this progress instead of Spark's tasks while the block runs, and once more at its end."""
    life = _LIFE.get()
    if life is None:
        yield
        return
    with life.reporting(progress):
        yield


def require_attempt() -> None:
    """Check that the current thread's attempt is not fenced; do nothing outside of an attempt.

    Raises:
        FencedError: The attempt is fenced.
    """
    if (life := _LIFE.get()) is not None:
        life.require()


class Heartbeat:
    """Heartbeat of an attempt: reports every few seconds that it is alive, and its progress.

    If the attempt is fenced, a process that was started for it exits at once, so that it does not interfere with its
    successor. In a user's process, the Spark jobs of the attempt are cancelled instead, and the block ends with
    `FencedError`.
    """

    def __init__(self, catalog: Catalog, request: JobRequest, *, ends_process: bool = False) -> None:
        """Use the attempt of a request.

        Args:
            ends_process: Whether the process was started for this attempt and ends with it.
        """
        self._catalog = catalog
        self._request = request
        self._ends_process = ends_process
        self._fenced: FencedError | None = None
        self._tag = f"calve-{uuid4().hex}"
        self._spark: SparkSession | None = None
        self._has_told = False
        self._progress: Progress | None = None
        self._token: Token[Heartbeat | None] | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Report the tasks of a session's active stages as progress; the session must outlive the block."""
        self._spark = spark
        try:
            yield
        finally:
            with self._lock:
                self._spark = None

    @contextmanager
    def reporting(self, progress: Progress) -> Iterator[None]:
        """Report the progress of a part of the work; see the function of this name."""
        with self._lock:
            before, self._progress = self._progress, progress
        try:
            yield
            self._beat()
        finally:
            with self._lock:
                self._progress = before

    def __enter__(self) -> Self:
        """Send the first heartbeat, so that a fenced attempt does not start, and begin to send more."""
        self._beat()
        if (context := SparkContext._active_spark_context) is not None:
            context.addJobTag(self._tag)
        self._thread.start()
        self._token = _LIFE.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the heartbeats, before the result is recorded.

        Raises:
            FencedError: The attempt is fenced.
        """
        if self._token is not None:
            _LIFE.reset(self._token)
        self._ended.set()
        self._thread.join()
        if (context := SparkContext._active_spark_context) is not None:
            context.removeJobTag(self._tag)
        # The cancelled Spark jobs have raised other errors.
        if self._fenced is not None and (error is None or isinstance(error, Exception)) and error is not self._fenced:
            raise self._fenced from error

    def require(self) -> None:
        """Check that the attempt is not fenced.

        Raises:
            FencedError: The attempt is fenced.
        """
        if self._fenced is not None:
            raise self._fenced
        self._beat()

    def _run(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                self._beat()
            except FencedError as error:
                if self._has_succeeded():
                    return
                log.error("%s", error)
                if self._ends_process:
                    os._exit(1)
                self._fenced = error
                self._cancel_jobs()
            except Exception:
                log.exception("The heartbeat failed; trying again")

    def _cancel_jobs(self) -> None:
        """Cancel the running Spark jobs of this attempt; the next heartbeat cancels those that begin later."""
        if (context := SparkContext._active_spark_context) is not None:
            context.cancelJobsWithTag(self._tag)

    def _has_succeeded(self) -> bool:
        """Return whether the attempt has committed and only its process is still running."""
        job = self._catalog.operations.get_job(self._request.operation_id, self._request.step)
        return job is not None and job.attempt == self._request.attempt and job.state is JobState.SUCCEEDED

    def _beat(self) -> None:
        request = self._request
        done, total, note = self._how_far()
        application, ui = self._application()
        self._catalog.operations.heartbeat(
            request.operation_id,
            request.step,
            request.attempt,
            done=done,
            total=total,
            note=note,
            spark_application=application,
            spark_ui=ui,
        )
        self._has_told = self._has_told or application is not None

    def _application(self) -> tuple[str, str | None] | tuple[None, None]:
        """Return the id of the application and the address of its page, once after it has started."""
        with self._lock:
            if self._spark is None or self._has_told:
                return None, None
            context = self._spark.sparkContext
            return context.applicationId, context.uiWebUrl

    def _how_far(self) -> tuple[int | None, int | None, str | None]:
        with self._lock:
            if (progress := self._progress) is not None:
                return min(progress.done(), progress.total), progress.total, progress.note
            done, total = (None, None) if self._spark is None else _tasks(self._spark)
            return done, total, None if done is None else f"tasks of {self._request.step}"


_LIFE: ContextVar[Heartbeat | None] = ContextVar("heartbeat", default=None)
"""The heartbeat of the current thread's attempt."""


def _tasks(spark: SparkSession) -> tuple[int, int] | tuple[None, None]:
    """Return the numbers of finished and of all tasks of the active stages; None if no stage is active."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
    if not stages:
        return None, None
    return sum(info.numCompletedTasks for info in stages), sum(info.numTasks for info in stages)
