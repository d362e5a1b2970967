"""The root of the tree of errors, and its main branches."""

from __future__ import annotations

from typing import Any, ClassVar


class CatalogError(Exception):
    """Base of all errors of the catalog."""

    retryable: ClassVar[bool] = False

    position: int | None = None
    """Offset of the offending character in what was asked, from 0; None when no place can be named."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from attributes, because subclasses build their message from typed arguments."""
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(cls: type[CatalogError], args: tuple[Any, ...], attributes: dict[str, Any]) -> CatalogError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


class InvalidRequestError(CatalogError):
    """The request cannot be right, whenever it is sent."""


class NotFoundError(CatalogError):
    """Something that the request names does not exist."""


class AlreadyExistsError(CatalogError):
    """Something of this name exists."""


class LimitExceededError(CatalogError):
    """A documented limit would be passed."""


class ConflictError(CatalogError):
    """Somebody else changed, or holds, what the request is about; look again and retry."""

    retryable: ClassVar[bool] = True


class VerificationFailedError(CatalogError):
    """What was written differs from what should have been written."""
