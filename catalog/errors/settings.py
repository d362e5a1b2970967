"""Errors about forms and configurations."""

from __future__ import annotations

from catalog.errors.base import InvalidRequestError


class WrongFieldError(InvalidRequestError):
    """A form field is missing, unexpected or invalid.

    Attributes:
        field: Its name.
    """

    def __init__(self, field: str, problem: str) -> None:
        """Build the message, which begins with the field's name."""
        self.field = field
        super().__init__(f"{field}: {problem}")


class InvalidConfigurationError(InvalidRequestError):
    """Invalid entry in the YAML list of tables, or invalid environment variable.

    Attributes:
        problems: All that is wrong, each in a sentence; the message has a line for each.
    """

    def __init__(self, *problems: str) -> None:
        """Build the message."""
        self.problems = problems
        super().__init__("\n".join(problems))
