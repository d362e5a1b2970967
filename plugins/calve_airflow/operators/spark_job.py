"""Operator that runs a step of an operation as a Spark job."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from calve_airflow.catalog_access import SparkJobLostError, job_error, open_catalog
from calve_airflow.submitting.job_process import JobProcess
from calve_airflow.submitting.liveness import Liveness, is_running
from calve_airflow.submitting.spark_submit import job_script, submit_command, submit_environment
from catalog.settings.environment import state_folder

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations.records import JobRun, Operation

CANCELLED = "CANCELLED"
"""Error class of a job whose task was killed."""

_UNFIT_FOR_FOLDERS = re.compile(r"[^A-Za-z0-9_-]+")


class SparkJobOperator(BaseOperator):
    """Task that runs `spark_jobs/<job>.py` as one step of an operation, and over its retries yields one result.

    The job is submitted through the Spark provider's connection, in client mode, and continues to run when this task is
    killed. The job's row in the catalog alone decides what a task does: it returns the result of a job that succeeded,
    joins one that still runs, and submits a new attempt if there is none or the last one failed or is lost. A new
    attempt fences all earlier ones: they can no longer commit. The task itself keeps no state that a crash between
    submitting a job and recording it could lose.

    A job is lost if its process or host died before it recorded a result. It is then submitted again in the same try. A
    job that recorded an error fails the try.

    Args:
        job: The name of the script without `.py`.
        operation_id: The operation that the job is part of (templated).
        request: The job's own arguments, JSON-serializable (templated). No secrets: Airflow's UI shows them.
        step: The step of the operation; by default the job's name.
        conn_id: Airflow connection of type `spark`; its host is `local[*]`, `spark://…`, `k8s://…` or `yarn`.
        conf: Spark configuration; overrides the defaults for small jobs.
        poll_seconds: Seconds between two polls of the job.
        resubmissions: Number of times that one try submits a lost job again.

    Returns:
        The job's result, as the job recorded it.

    Raises:
        AirflowFailException: The job failed with an error that is not retryable, or it cannot be submitted.
        SparkJobFailedError: The job failed with another error.
        SparkJobLostError: The job is lost, and was already resubmitted as often as allowed, or another attempt
            replaced it.
    """

    template_fields: Sequence[str] = ("operation_id", "request")
    template_fields_renderers = {"request": "json"}  # noqa: RUF012 - read by Airflow

    _followed: _Attempt | None = None

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

    def execute(self, context: Context) -> dict[str, Any]:
        """Submit or join the job, follow it until it ends, and return its result."""
        with open_catalog() as catalog:
            self._followed = self._existing_job(catalog) or self._submit(catalog)
            job = self._follow(catalog, self._followed)
            self._followed = None
        if job.state == "FAILED":
            raise job_error(self.job, job.error_class, job.error_message)
        return dict(job.result or {})

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
                self._fail_attempt(catalog, followed, CANCELLED, "its Airflow task was killed")
        finally:
            followed.process.terminate()

    def _existing_job(self, catalog: Catalog) -> _Attempt | None:
        job = catalog.operations.get_job(self.operation_id, self.step)
        if job is None:
            return None
        process = JobProcess(Path(job.log_path or os.devnull))
        if job.state == "FAILED":
            # A cancelled job may still run until its next heartbeat.
            process.terminate()
            return None
        if job.state == "SUCCEEDED":
            if not self.is_current(catalog, job):
                self.log.info("The result of attempt %d of Spark job %s is outdated", job.attempt, self.job)
                return None
            self.log.info("Attempt %d of Spark job %s has already succeeded", job.attempt, self.job)
        elif is_running(job, process):
            self.log.info("Joining attempt %d of Spark job %s, which is still running", job.attempt, self.job)
        else:
            self.log.warning("Attempt %d of Spark job %s is lost; submitting another", job.attempt, self.job)
            return None
        return _Attempt(job.attempt, process)

    def _submit(self, catalog: Catalog) -> _Attempt:
        from catalog.operations.job_requests import check_request

        values = {**self.request, "operation_id": self.operation_id, "step": self.step}
        # Checked before the attempt starts, so that an invalid request starts none.
        check_request(self.job, values)
        command = submit_command(
            job_script(self.job),
            name=f"calve {self.job} {self.operation_id}",
            conn_id=self.conn_id,
            conf=self.conf or {},
        )
        operation_folder = state_folder() / "jobs" / _UNFIT_FOR_FOLDERS.sub("_", self.operation_id)[:120]
        process = JobProcess.in_new_folder(operation_folder, f"{self.job}-")
        number = catalog.operations.start_job(self.operation_id, self.step, log_path=str(process.log_path))
        self._followed = attempt = _Attempt(number, process)
        request = process.write_request(json.dumps({**values, "attempt": number}))
        process.start([*command, str(request)], submit_environment())
        self.log.info("Submitted attempt %d of Spark job %s; its log is %s", number, self.job, process.log_path)
        return attempt

    def _follow(self, catalog: Catalog, attempt: _Attempt) -> JobRun:
        """Wait until the job ends, submit it again if it is lost, and return its row."""
        left = self.resubmissions
        liveness = Liveness(self.poll_seconds)
        while True:
            job, has_process = self._poll(catalog, attempt, liveness)
            if job.is_alive and has_process:
                time.sleep(self.poll_seconds)
                continue
            if job.is_alive:
                self._fail_attempt(catalog, attempt, SparkJobLostError.__name__, _loss(job, attempt.process))
                job = self._current_job(catalog, attempt)
            if job.error_class != SparkJobLostError.__name__:
                return job
            message = f"attempt {attempt.number} of Spark job {self.job} is lost: {job.error_message}"
            if left == 0:
                raise SparkJobLostError(message)
            self.log.warning(
                "%s; submitting another (%d of %d)", message, self.resubmissions - left + 1, self.resubmissions
            )
            left -= 1
            attempt = self._submit(catalog)

    def _poll(self, catalog: Catalog, attempt: _Attempt, liveness: Liveness) -> tuple[JobRun, bool]:
        """Log the job's new output and progress; return its row, and whether it seems to run.

        While the catalog cannot be reached, the task waits: the job may be healthy.
        """
        from catalog.operations.patience import patiently

        def read() -> tuple[JobRun, str | None]:
            return self._current_job(catalog, attempt), _progress(catalog.operations.get(self.operation_id))

        what = f"the task of Spark job {self.job}"
        job, progress = patiently(read, what, sleep=time.sleep)
        has_process = liveness.is_running(job, attempt.process)
        if not has_process:
            # The job may have recorded its result and ended after its row was read.
            job, progress = patiently(read, what, sleep=time.sleep)
        for line in attempt.process.new_log_lines():
            self.log.info("%s", line)
        if progress and progress != attempt.progress:
            self.log.info("%s", progress)
            attempt.progress = progress
        return job, has_process

    def _current_job(self, catalog: Catalog, attempt: _Attempt) -> JobRun:
        job = catalog.operations.get_job(self.operation_id, self.step)
        if job is None or job.attempt != attempt.number:
            raise SparkJobLostError(f"another attempt replaced attempt {attempt.number} of Spark job {self.job}")
        return job

    def _fail_attempt(self, catalog: Catalog, attempt: _Attempt, error_class: str, reason: str) -> None:
        catalog.operations.fail_job(self.operation_id, self.step, attempt.number, error_class, reason)


@dataclass
class _Attempt:
    """An attempt that the task follows.

    Attributes:
        progress: The progress that was logged last.
    """

    number: int
    process: JobProcess
    progress: str | None = None


def _loss(job: JobRun, process: JobProcess) -> str:
    if not process.is_visible:
        return f"no heartbeat for {job.silent_ms // 1000} s from its host {job.host}"
    code = "unknown" if process.exit_code is None else process.exit_code
    return f"it ended without recording a result (exit code {code}); its log is {process.log_path}"


def _progress(operation: Operation) -> str | None:
    if not operation.progress_total:
        return operation.progress_note
    done, total = operation.progress_done, operation.progress_total
    return f"{done:,} of {total:,} {operation.progress_note or 'steps'}, {100 * done // total} %"
