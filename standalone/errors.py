"""What can go wrong while the embedded stack is set up, started or used.

StandaloneError
├── SetUpError           the machine lacks something; the message says which command installs it
├── PostgresError        the embedded PostgreSQL server does not do what it was asked
├── StackError           a component of the stack does not start, or another stack uses the same folder
└── AirflowApiError      Airflow's REST API refused a request or did not answer in time
"""

from __future__ import annotations


class StandaloneError(Exception):
    """Base of everything that `standalone` raises on purpose."""


class SetUpError(StandaloneError):
    """The machine lacks something that the set-up may not or cannot install by itself."""


class PostgresError(StandaloneError):
    """The embedded PostgreSQL server could not be initialised, started or reached."""


class StackError(StandaloneError):
    """A component did not start, or the state folder is in use by another stack."""


class AirflowApiError(StandaloneError):
    """Airflow's REST API answered with an error, or a run did not end in time.

    Attributes:
        status: HTTP status of the answer; None when there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
