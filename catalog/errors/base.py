"""The root of the error tree and its main branches, and phrases that many messages have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar


class CatalogError(Exception):
    """Base class of all errors of the catalog."""

    retryable: ClassVar[bool] = False

    position: int | None = None
    """Zero-based offset of the offending character in the input; None when there is no such position."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling: rebuild from attributes, because subclasses build their message from typed arguments."""
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(cls: type[CatalogError], args: tuple[Any, ...], attributes: dict[str, Any]) -> CatalogError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


def first_of(items: Sequence[object], most: int, *, count: int | None = None, separator: str = ", ") -> str:
    """Return the first items, and how many there are besides: `a, b and 3 more`.

    Args:
        most: How many are named.
        count: The number of all of them; None if it is that of `items`.
        separator: With `;`, `and` follows one, too: `a; b; and 3 more`.
    """
    shown = items[:most]
    rest = (len(items) if count is None else count) - len(shown)
    more = f"{separator if ';' in separator else ' '}and {rest:,} more" if rest > 0 else ""
    return separator.join(map(str, shown)) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question after the known name that is most similar to a name, in any case; empty if none is."""
    # Imported late, because only errors need it.
    from difflib import get_close_matches

    spelled = {one.lower(): one for one in known}
    similar = get_close_matches(name.lower(), spelled, n=1)
    return f"did you mean {spelled[similar[0]]}?" if similar else ""


class InvalidRequestError(CatalogError):
    """The request is invalid; sending it again does not help."""


class NotFoundError(CatalogError):
    """An object that the request names does not exist.

    Attributes:
        table: The name, if a table of the catalog was looked for.
    """

    table: str | None = None


class AlreadyExistsError(CatalogError):
    """An object of this name already exists."""


class LimitExceededError(CatalogError):
    """The request would exceed a documented limit."""


class ConflictError(CatalogError):
    """Another request changed, or is using, the same object; read it again and retry."""

    retryable: ClassVar[bool] = True


class RequirementFailedError(ConflictError):
    """A requirement of a commit does not hold, because another commit came first; read it again and commit."""

    retryable: ClassVar[bool] = False

    def __init__(self, finding: str) -> None:
        """Build the message from the difference."""
        super().__init__(f"Requirement failed: {finding}")


class VerificationFailedError(CatalogError):
    """The written data differ from the expected data."""
