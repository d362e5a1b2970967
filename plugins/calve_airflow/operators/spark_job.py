"""Operator that runs a step of an operation as a Spark job."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout

from calve_airflow.catalog_access import SparkJobFailedError, SparkJobLostError, job_error, open_catalog
from calve_airflow.metrics import Metric, count, record_duration
from calve_airflow.submitting import applications
from calve_airflow.submitting.attempts import FollowedAttempt, Liveness, cancel, is_running, recorded_process
from calve_airflow.submitting.job_process import JobProcess
from calve_airflow.submitting.spark_submit import (
    has_drivers_on_cluster,
    job_script,
    submit_command,
    submit_environment,
)
from calve_airflow.triggers.spark_jobs import SparkJobTrigger
from catalog.operations.records import JobKey
from catalog.settings.environment import jobs_folder, spark_history

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations.records import JobRun, Operation

_INTERRUPTIONS = (SparkJobLostError.__name__, "CatalogUnavailableError", "CommitOutcomeUnknownError")
"""Errors of jobs that are submitted again in the same try: the job died, or the catalog's database was down."""

_BUILD = "build_partition_index"

_UNFIT_FOR_FOLDERS = re.compile(r"[^A-Za-z0-9_-]+")


class SparkApplicationLink(BaseOperatorLink):
    """The application of a task's Spark job on the history server, if `CALVE_SPARK_HISTORY` names one."""

    @property
    def name(self) -> str:
        """The link's title."""
        return "Spark application"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, when the task has ended; empty if it is unknown."""
        return getattr(operator, "spark_page", None) or ""


class SparkJobOperator(BaseOperator):
    """Task that runs `spark_jobs/<job>.py` as one step of an operation, and over its retries yields one result.

    The job is submitted through the Spark provider's connection, and continues to run when this task is killed. The
    job's row in the catalog alone decides what a task does: it returns the result of a job that succeeded, joins one
    that still runs, and submits a new attempt if there is none or the last one failed or is lost. A new attempt fences
    all earlier ones: they can no longer commit. The task itself keeps no state that a crash between submitting a job
    and recording it could lose.

    A job is lost if its process or host died before it recorded a result. It is then submitted again in the same try,
    as is a job that failed because the catalog's database was down. A job that recorded another error fails the try.

    Subclasses override `prepare` and `finish` instead of `execute`, so that their tasks may be deferred, too.

    Args:
        job: The name of the script without `.py`.
        operation_id: The operation that the job is part of (templated).
        request: The job's own arguments, JSON-serializable (templated). No secrets: Airflow's UI shows them.
        step: The step of the operation; by default the job's name.
        conn_id: Airflow connection of type `spark`; its host is `local[*]`, `spark://…`, `k8s://…` or `yarn`.
        conf: Spark configuration; overrides the defaults for small jobs. No secrets: Airflow's database keeps it while
            the task is deferred.
        poll_seconds: Maximum seconds between two polls of the job.
        resubmissions: Number of times that one try submits an interrupted job again.
        deferrable: Wait for the job in the triggerer, without a worker slot; by default `[operators]
            default_deferrable` of Airflow. The job must outlive the task's process: not where each task has a container
            of its own, as with KubernetesExecutor. `execution_timeout` includes the time in the triggerer.

    Returns:
        The job's result, as the job recorded it.

    Raises:
        AirflowFailException: The job failed with an error that is not retryable, or it cannot be submitted.
        SparkJobFailedError: The job failed with another error.
        SparkJobLostError: The job is lost, and was already resubmitted as often as allowed, or another attempt
            replaced it.
        CatalogUnavailableError: The catalog could not be reached for `CALVE_JOB_PATIENCE_SECONDS`; the job continues.
        AirflowTaskTimeout: A deferred task waited for longer than `execution_timeout`; the job is cancelled.
    """

    template_fields: Sequence[str] = ("operation_id", "request")
    template_fields_renderers = {"request": "json"}  # noqa: RUF012 - read by Airflow

    operator_extra_links = (SparkApplicationLink(),)

    spark_page: str | None = None
    _followed: FollowedAttempt | None = None
    _has_run = False

    def __init__(
        self,
        *,
        job: str,
        operation_id: str,
        request: Mapping[str, Any],
        step: str | None = None,
        conn_id: str = "spark_default",
        conf: Mapping[str, str] | None = None,
        poll_seconds: float = 1.0,
        resubmissions: int = 2,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.step = step or job
        self.operation_id = operation_id
        self.request = request
        self.conn_id = conn_id
        self.conf = conf
        self.poll_seconds = poll_seconds
        self.resubmissions = resubmissions
        self.deferrable = _default_deferrable() if deferrable is None else deferrable

    def execute(self, context: Context) -> Any:
        """Submit or join the job, follow it until it ends, and return its result."""
        with open_catalog() as catalog:
            result = self.prepare(context, catalog)
            if result is not None:
                return self.finish(context, catalog, result)
            return self._complete(context, catalog, self.run_job)

    def resume(self, context: Context, event: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Any:
        """Continue to follow the job after the task was deferred.

        Args:
            event: The arguments of the trigger.
            settings: What `prepare` has set; None in `dag.test()`, which loses it, so that it is prepared again.
        """
        with open_catalog() as catalog:
            if settings is None:
                self.prepare(context, catalog)
            for name, value in (settings or {}).items():
                setattr(self, name, value)
            self._followed, self._has_run = FollowedAttempt.from_json(event["attempt"]), True
            return self._complete(context, catalog, self._follow)

    def prepare(self, context: Context, catalog: Catalog) -> Mapping[str, Any] | None:
        """Prepare the job, for subclasses: set `operation_id`, `request`, `conf` and `conn_id`, which deferral keeps.

        Returns:
            The result, if no job is needed; usually None.
        """
        return None

    def finish(self, context: Context, catalog: Catalog, result: Mapping[str, Any]) -> Any:
        """Return the result of the task, given that of the job; for subclasses.

        If the task was deferred, this is another process than that of `prepare`.
        """
        return dict(result)

    def explain(self, context: Context, catalog: Catalog, error: Exception) -> None:
        """Log or act on the error of a job, before it fails the task; for subclasses."""

    def run_job(self, catalog: Catalog) -> Mapping[str, Any]:
        """Submit or join the job, follow it until it ends, and return its result."""
        self._has_run = False
        self._followed = self._existing_job(catalog) or self._submit(catalog)
        if self.execution_timeout is not None:
            self._followed.deadline = time.time() + self.execution_timeout.total_seconds()
        return self._follow(catalog)

    def is_current(self, catalog: Catalog, job: JobRun) -> bool:
        """Return whether the result of a job that succeeded is still valid; otherwise the job runs again."""
        return True

    def on_kill(self) -> None:
        """Cancel the attempt, so that it can no longer commit, and end its process."""
        if self._followed is None:
            return
        from catalog import Catalog

        followed = self._followed
        try:
            with Catalog.open() as catalog:
                cancel(catalog, self.operation_id, self.step, followed.number)
        finally:
            followed.process.terminate()

    def _complete(self, context: Context, catalog: Catalog, run: Callable[[Catalog], Mapping[str, Any]]) -> Any:
        try:
            result = run(catalog)
        except (AirflowFailException, SparkJobFailedError) as error:
            self.explain(context, catalog, error)
            raise
        return self.finish(context, catalog, result)

    def _existing_job(self, catalog: Catalog) -> FollowedAttempt | None:
        job = catalog.operations.get_job(self.operation_id, self.step)
        if job is None:
            return None
        process = recorded_process(job.log_path)
        # One look only: a job that ends between two looks would be taken for a lost one.
        has_process = job.is_alive and is_running(job, process)
        if job.is_alive and not has_process:
            # The job may have recorded its result and ended after its row was read.
            job = catalog.operations.get_job(self.operation_id, self.step) or job
        if job.state == "FAILED":
            # A cancelled job may still run until its next heartbeat.
            process.terminate()
            return None
        if job.state == "SUCCEEDED":
            if not self.is_current(catalog, job):
                self.log.info("The result of attempt %d of Spark job %s is outdated", job.attempt, self.job)
                return None
            self.log.info("Attempt %d of Spark job %s has already succeeded", job.attempt, self.job)
        elif has_process:
            self.log.info("Joining attempt %d of Spark job %s, which is still running", job.attempt, self.job)
        else:
            self.log.warning("Attempt %d of Spark job %s is lost; submitting another", job.attempt, self.job)
            process.remove_settings()
            return None
        return FollowedAttempt(job.attempt, process)

    def _submit(self, catalog: Catalog) -> FollowedAttempt:
        from catalog.operations.job_requests import check_request
        from catalog.operations.patience import patiently

        values = {**self.request, "operation_id": self.operation_id, "step": self.step}
        # Checked before the attempt starts, so that an invalid request starts none.
        check_request(self.job, values)
        operation_folder = jobs_folder() / _UNFIT_FOR_FOLDERS.sub("_", self.operation_id)[:120]
        process = JobProcess.in_new_folder(operation_folder, f"{self.job}-")
        version, environment = self._shared_version(process), submit_environment()
        command = submit_command(
            job_script(applications.SCRIPT if version else self.job),
            # An application is the same for all of its jobs.
            name="calve" if version else f"calve {self.job} {self.operation_id}",
            conn_id=self.conn_id,
            conf=self.conf or {},
            settings_path=process.settings_path,
        )
        log_path = str(process.log_path)
        start = partial(catalog.operations.start_job, self.operation_id, self.step, request=values, log_path=log_path)
        try:
            attempt = patiently(start, f"the task of Spark job {self.job}")
        except BaseException:
            process.remove_settings()
            raise
        self._followed = followed = FollowedAttempt(attempt, process)
        if version:
            key = applications.application_key(version, command, environment, self.operation_id)
            job = JobKey(self.operation_id, self.step, attempt, self.job)
            if applications.hand_over(catalog.operations.applications, key, job, process):
                self.log.info("Attempt %d of Spark job %s runs in the running application", attempt, self.job)
                return followed
            arguments = [applications.open_application(catalog.operations.applications, key, job, process)]
        else:
            arguments = [self.operation_id, self.step, str(attempt)]
        process.start([*command, *arguments], environment)
        self.log.info("Submitted attempt %d of Spark job %s; its log is %s", attempt, self.job, process.log_path)
        return followed

    def _shared_version(self, process: JobProcess) -> str | None:
        """Return the version of the code if the job shares an application with others; otherwise None."""
        version = applications.shared_version(self.job)
        if version is None or has_drivers_on_cluster(self.conn_id) or not process.can_become_application:
            return None
        return version

    def _follow(self, catalog: Catalog) -> Mapping[str, Any]:
        """Wait until the job ends, submit it again if it is lost, and return its result."""
        liveness = Liveness(self.poll_seconds)
        while True:
            followed = self._followed
            assert followed is not None
            job, has_process = self._poll(catalog, followed, liveness)
            self._has_run = self._has_run or job.is_alive
            if job.is_alive and has_process:
                self._wait(followed, liveness)
                continue
            if job.is_alive:
                job = self._lose(catalog, followed, _loss(job, followed.process))
            followed.process.remove_settings()
            self.spark_page = job.spark_page(spark_history())
            if job.error_class not in _INTERRUPTIONS or followed.resubmitted >= self.resubmissions:
                break
            self._resubmit(catalog, followed, self._error(job))
        self._followed = None
        if job.state == "FAILED":
            raise self._error(job)
        if self._has_run and self.job == _BUILD:
            # Not for the result of an earlier run.
            table = self.request["table"]
            count(Metric.INDEX_BUILDS, table=table)
            record_duration(
                Metric.INDEX_BUILD_DURATION, catalog.operations.get(self.operation_id).created_at_ms, table=table
            )
        return dict(job.result or {})

    def _error(self, job: JobRun) -> Exception:
        if job.error_class == SparkJobLostError.__name__:
            return SparkJobLostError(f"attempt {job.attempt} of Spark job {self.job} is lost: {job.error_message}")
        return job_error(self.job, job.error_class, job.error_message)

    def _lose(self, catalog: Catalog, followed: FollowedAttempt, reason: str) -> JobRun:
        """Fail a lost attempt, so that it can no longer commit; return its row, which may have a result by now."""
        catalog.operations.fail_job(self.operation_id, self.step, followed.number, SparkJobLostError.__name__, reason)
        return self._current_job(catalog, followed)

    def _wait(self, followed: FollowedAttempt, liveness: Liveness) -> None:
        """Wait before the next poll; a deferrable task leaves its worker slot instead, and continues in `resume`.

        Raises:
            AirflowTaskTimeout: The task was deferred for longer than `execution_timeout`; the job is cancelled.
        """
        if not self.deferrable:
            time.sleep(liveness.pause_seconds)
            return
        if followed.is_overdue:
            self.on_kill()
            raise AirflowTaskTimeout(f"Spark job {self.job} ran for longer than {self.execution_timeout}")
        self.defer(
            trigger=SparkJobTrigger(self.operation_id, self.step, followed.as_json(), self.poll_seconds),
            method_name="resume",
            kwargs={
                "settings": {
                    "operation_id": self.operation_id,
                    "request": self.request,
                    "conf": self.conf,
                    "conn_id": self.conn_id,
                }
            },
        )

    def _resubmit(self, catalog: Catalog, ended: FollowedAttempt, error: Exception) -> None:
        count = ended.resubmitted + 1
        self.log.warning("%s; submitting another (%d of %d)", error, count, self.resubmissions)
        followed = self._submit(catalog)
        followed.resubmitted, followed.deadline = count, ended.deadline

    def _poll(self, catalog: Catalog, followed: FollowedAttempt, liveness: Liveness) -> tuple[JobRun, bool]:
        """Log the job's new output and progress; return its row, and whether it seems to run.

        While the catalog cannot be reached, the task waits: the job may be healthy.
        """
        from catalog.operations.patience import patiently

        def read() -> tuple[JobRun, str | None]:
            return self._current_job(catalog, followed), _progress(catalog.operations.get(self.operation_id))

        what = f"the task of Spark job {self.job}"
        job, progress = patiently(read, what, sleep=time.sleep)
        has_process = liveness.is_running(job, followed.process)
        if not has_process:
            # The job may have recorded its result and ended after its row was read.
            job, progress = patiently(read, what, sleep=time.sleep)
        for line in followed.process.new_log_lines():
            self.log.info("%s", line)
        if progress and progress != followed.progress:
            self.log.info("%s", progress)
            followed.progress = progress
        return job, has_process

    def _current_job(self, catalog: Catalog, followed: FollowedAttempt) -> JobRun:
        job = catalog.operations.get_job(self.operation_id, self.step)
        if job is None or job.attempt != followed.number:
            raise SparkJobLostError(f"another attempt replaced attempt {followed.number} of Spark job {self.job}")
        return job


def _default_deferrable() -> bool:
    from airflow.configuration import conf

    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


def _loss(job: JobRun, process: JobProcess) -> str:
    if not process.is_visible:
        return f"no heartbeat for {job.silent_ms // 1000} s from its host {job.host}"
    code = "unknown" if process.exit_code is None else process.exit_code
    error = process.last_error()
    reason = f", {error}" if error else ""
    return f"it ended without recording a result (exit code {code}{reason}); its log is {process.log_path}"


def _progress(operation: Operation) -> str | None:
    if not operation.progress_total:
        return operation.progress_note
    done, total = operation.progress_done, operation.progress_total
    return f"{done:,} of {total:,} {operation.progress_note or 'steps'}, {100 * done // total} %"
