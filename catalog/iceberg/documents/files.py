"""Metadata files of tables and views: reading, names and writing."""

from __future__ import annotations

import gzip
import json
import logging
import posixpath
import zlib
from collections.abc import Iterable
from uuid import uuid4

from catalog.errors import InvalidTableError, MissingFileError
from catalog.files.failures import storage_errors
from catalog.iceberg.documents.schemas import Json
from catalog.iceberg.metadata import VERSION
from catalog.iceberg.places import METADATA
from catalog.iceberg.storage import file_io, read_contents

log = logging.getLogger(__name__)

_FOLDER = "write.metadata.path"
_CODEC = "write.metadata.compression-codec"


def read_document(location: str) -> Json:
    """Return the contents of a metadata file.

    Raises:
        MissingFileError: There is no such file.
        StorageError: It cannot be read.
        InvalidTableError: It is not a metadata file.
    """
    try:
        with storage_errors(location):
            contents = read_contents(location)
    except MissingFileError as error:
        raise MissingFileError(f"Failed to open input stream for file: {location}: it does not exist") from error
    except (ValueError, EOFError, zlib.error) as error:
        raise InvalidTableError(f"{location} is not a metadata file of Iceberg: {error}") from error
    try:
        document = json.loads(contents)
    except (ValueError, RecursionError) as error:
        raise InvalidTableError(f"{location} is not a metadata file of Iceberg: it has no JSON") from error
    if not isinstance(document, dict):
        raise InvalidTableError(f"{location} is not a metadata file of Iceberg: it has no JSON object")
    return document


def write_document(document: Json, before: str | None) -> str:
    """Write a new metadata file, which is not visible yet; return its location.

    Args:
        before: The location of the metadata before.

    Raises:
        StorageError: It cannot be written.
    """
    properties = document["properties"]
    number = VERSION.match(posixpath.basename(before)) if before else None
    is_gzip = properties.get(_CODEC, "none").lower() == "gzip"
    folder = (properties.get(_FOLDER) or f"{document['location']}/{METADATA}").rstrip("/")
    name = f"{int(number[1]) + 1 if number else 0:05d}-{uuid4()}{'.gz' if is_gzip else ''}.metadata.json"
    location = f"{folder}/{name}"
    contents = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    with storage_errors(location), file_io(location).new_output(location).create() as stream:
        stream.write(gzip.compress(contents) if is_gzip else contents)
    return location


def delete_documents(locations: Iterable[str]) -> None:
    """Delete metadata files that no pointer names; what cannot be deleted is logged."""
    for location in locations:
        try:
            file_io(location).delete(location)
        except (OSError, ValueError) as error:
            log.warning("cannot delete the metadata file %s: %s", location, error)
