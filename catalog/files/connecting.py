"""Connections to the file systems of PyArrow."""

from __future__ import annotations

from urllib.parse import quote

import pyarrow
from pyarrow import fs

from catalog.errors import InvalidLocationError, StorageError
from catalog.files import object_stores
from catalog.files.failures import first_line
from catalog.files.locations import has_options

_ON_GCS = ("gs://", "gcs://")
_LIMITED_RETRIES = "?retry_limit_seconds=10"
"""By default, PyArrow repeats a request to GCS for 15 minutes."""


def connect(location: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI, and the path in it.

    Raises:
        InvalidLocationError: No file system is known for the location.
        StorageError: The file system cannot be reached.
    """
    try:
        if object_stores.is_on_s3(location) and not has_options(location):
            path = location.partition("://")[2]
            return object_stores.s3_file_system(path.partition("/")[0]), path
        limit = _LIMITED_RETRIES if location.startswith(_ON_GCS) and "?" not in location else ""
        file_system, path = fs.FileSystem.from_uri(f"{_escaped_uri(location)}{limit}")
    except (pyarrow.ArrowInvalid, ValueError) as error:
        raise InvalidLocationError(
            f"location {location!r}: no file system is known for it ({first_line(error)}); use an absolute path, or a "
            "URI such as s3://bucket/folder"
        ) from error
    except OSError as error:
        cause = object_stores.known_cause(error) or f"{first_line(error)}; correct that and try again"
        raise StorageError(f"{location} cannot be reached: {cause}") from error
    return file_system, path


def _escaped_uri(location: str) -> str:
    """Return a location as a URI; as in Hadoop, a `%` in a location is a literal character."""
    head, mark, query = location.partition("?")
    scheme, _, rest = head.partition("://")
    authority, slash, path = rest.partition("/")
    scheme = "s3" if scheme in object_stores.S3_SCHEMES else scheme
    return f"{scheme}://{authority}{slash}{quote(path)}{mark}{query}"
