"""Errors of the embedded stack's set-up, start and use.

StandaloneError
├── SetUpError           a system package is missing; the message has the command that installs it
├── PostgresError        the embedded PostgreSQL server cannot be initialised, started or reached
├── StackError           a component of the stack does not start, or another stack uses the same folder
├── TrinoError           Trino could not run a statement
└── AirflowApiError      Airflow's REST API refused a request or did not respond in time
"""

from __future__ import annotations


class StandaloneError(Exception):
    """Base class of the errors of this package."""


class SetUpError(StandaloneError):
    """A system package is missing that the set-up cannot install."""


class PostgresError(StandaloneError):
    """The embedded PostgreSQL server could not be initialised, started or reached."""


class StackError(StandaloneError):
    """A component did not start, or the state folder is in use by another stack."""


class TrinoError(StandaloneError):
    """Trino could not run a statement."""


class AirflowApiError(StandaloneError):
    """Airflow's REST API responded with an error, or a run did not end in time.

    Attributes:
        status: HTTP status of the response; None if there was no response.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
