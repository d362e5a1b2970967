"""Errors about forms and configurations."""

from __future__ import annotations

from catalog.errors.base import InvalidRequestError


class WrongFieldError(InvalidRequestError):
    """A field of a form is missing, superfluous, or not right.

    Attributes:
        field: Its name.
    """

    def __init__(self, field: str, problem: str) -> None:
        """Begin the message with the field's name."""
        self.field = field
        super().__init__(f"{field}: {problem}")


class InvalidConfigurationError(InvalidRequestError):
    """The YAML list of tables, or an environment variable, has a wrong entry."""
