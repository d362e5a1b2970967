"""Errors of disks, object stores and PyArrow as the catalog's errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import pyarrow

from catalog.errors import MissingFileError, StorageError
from catalog.files import object_stores
from catalog.files.long_names import is_too_long, too_long

T = TypeVar("T")


@contextmanager
def storage_errors(location: str) -> Iterator[None]:
    """Translate errors of disks, object stores and PyArrow into the catalog's errors.

    Raises:
        MissingFileError: A file or folder does not exist.
        InvalidLocationError: A name is longer than the file system allows.
        StorageError: Any other error, except `FileExistsError`, which callers handle.
    """
    try:
        yield
    except (StorageError, FileExistsError):
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{location}: {first_line(error)}; check the path") from error
    except (OSError, pyarrow.ArrowException) as error:
        if is_too_long(error):
            raise too_long(location) from error
        cause = object_stores.known_cause(error) or f"{first_line(error)}; correct that and try again"
        raise StorageError(f"{location} cannot be read or written: {cause}") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error, with the next after a colon; PyArrow appends its own C++ source lines."""
    reason = getattr(error, "strerror", None)
    first, *others = (str(reason or error).strip() or type(error).__name__).splitlines()
    return " ".join([first, *others[: first.endswith(":")]]).rstrip(".;")


def _translating(method: Callable[..., Any]) -> Callable[..., Any]:
    inner = getattr(method, "__wrapped__", None)
    if inner is not None:
        return contextmanager(_translating(inner))
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def generate(folder: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with storage_errors(folder.location):
                yield from method(folder, *args, **kwargs)

        return generate

    @wraps(method)
    def call(folder: Any, *args: Any, **kwargs: Any) -> Any:
        with storage_errors(folder.location):
            return method(folder, *args, **kwargs)

    return call


def with_catalog_errors(cls: type[T]) -> type[T]:
    """Wrap the public methods of a folder class so that they raise the catalog's errors."""
    for name, method in vars(cls).copy().items():
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _translating(method))
    return cls
