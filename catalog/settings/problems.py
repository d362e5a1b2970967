"""Collecting problems, so that one message names all of them."""

from __future__ import annotations

from types import TracebackType

from catalog.errors import CatalogError, InvalidConfigurationError


class Problems:
    """The problems of a configuration.

    Each block of `with problems:` is one check; it ends at its first error, and the next check follows:

        problems = Problems()
        with problems:
            check_the_name()
        with problems:
            check_the_value()
        problems.report()
    """

    def __init__(self) -> None:
        self.found: list[str] = []

    def __enter__(self) -> None:
        """Begin a check."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Keep the error of a check."""
        if not isinstance(error, CatalogError | ValueError | RecursionError):
            return False
        self.found += error.problems if isinstance(error, InvalidConfigurationError) else [str(error)]
        return True

    def report(self) -> None:
        """Raise what the checks found.

        Raises:
            InvalidConfigurationError: Something is wrong.
        """
        if self.found:
            raise InvalidConfigurationError(*self.found)
