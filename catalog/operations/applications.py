"""Spark applications that run the jobs of several steps, one after another, so that Spark starts once for all of them.

An application has a row while it accepts jobs. The row names the job that it runs; a row without one is idle. A task
hands its job over with one conditional update, and an idle application ends with one conditional delete, so that a job
never goes to two applications, nor to one that ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, Select, delete, insert, select, update

from catalog.operations.records import JobKey, SparkApplication
from catalog.storage import Storage
from catalog.storage.clock import CurrentMs
from catalog.storage.schema import SparkApplicationRow

LONGEST_MS = 24 * 60 * 60 * 1000
"""After this time, an application accepts no more jobs, so that the memory of its driver stays bounded."""


class SparkApplications:
    """The applications in one catalog."""

    def __init__(self, storage: Storage) -> None:
        """Use the catalog's database."""
        self._storage = storage

    def open(self, application_id: str, key: str, host: str, log_path: str, job: JobKey) -> None:
        """Record an application that is about to start, and its first job.

        Args:
            application_id: A random name.
            key: The digest of all that jobs must have in common to share the application.
            host: The host on which it is submitted.
            log_path: The log of the first job.
            job: The first job.
        """
        row = SparkApplicationRow
        with self._storage.write() as connection:
            # Applications end long before; these were killed.
            connection.execute(delete(row).where(row.started_at_ms < CurrentMs() - 2 * LONGEST_MS))
            connection.execute(
                insert(row).values(
                    id=application_id,
                    key=key,
                    host=host,
                    log_path=log_path,
                    started_at_ms=CurrentMs(),
                    **asdict(job),
                )
            )

    def of_key(self, key: str, host: str) -> Sequence[SparkApplication]:
        """Return the applications of a key on a host, the newest first; some of them may have been killed."""
        row = SparkApplicationRow
        query = _applications().where(row.key == key, row.host == host).order_by(row.started_at_ms.desc(), row.id)
        with self._storage.read() as connection:
            return [_to_application(*found) for found in connection.execute(query)]

    def hand_over(self, application_id: str, job: JobKey) -> bool:
        """Give a job to an application if it is still idle; return whether it was."""
        row = SparkApplicationRow
        change = update(row).where(_is_idle(application_id))
        with self._storage.write() as connection:
            return connection.execute(change.values(**asdict(job))).rowcount == 1

    def find(self, application_id: str) -> SparkApplication | None:
        """Return an application; None if it accepts no jobs any longer."""
        query = _applications().where(SparkApplicationRow.id == application_id)
        with self._storage.read() as connection:
            found = connection.execute(query).one_or_none()
        return None if found is None else _to_application(*found)

    def become_idle(self, application_id: str) -> None:
        """Record that an application has ended its job, and accepts another one."""
        row = SparkApplicationRow
        change = update(row).where(row.id == application_id)
        with self._storage.write() as connection:
            connection.execute(change.values(operation_id=None, step=None, attempt=None, script=None))

    def close_if_idle(self, application_id: str) -> bool:
        """Accept no more jobs for an application, unless it has one; return whether it accepts none any longer."""
        with self._storage.write() as connection:
            connection.execute(delete(SparkApplicationRow).where(_is_idle(application_id)))
        return self.find(application_id) is None

    def close(self, application_id: str) -> None:
        """Accept no more jobs for an application that ends or was killed."""
        row = SparkApplicationRow
        with self._storage.write() as connection:
            connection.execute(delete(row).where(row.id == application_id))


def _is_idle(application_id: str) -> ColumnElement[bool]:
    row = SparkApplicationRow
    return (row.id == application_id) & row.operation_id.is_(None)


def _applications() -> Select[str, str, str | None, str | None, int | None, str | None]:
    row = SparkApplicationRow
    return select(row.id, row.log_path, row.operation_id, row.step, row.attempt, row.script)


def _to_application(
    application_id: str,
    log_path: str,
    operation_id: str | None,
    step: str | None,
    attempt: int | None,
    script: str | None,
) -> SparkApplication:
    if operation_id is None or step is None or attempt is None or script is None:
        return SparkApplication(application_id, log_path, None)
    return SparkApplication(application_id, log_path, JobKey(operation_id, step, attempt, script))
