"""Access to the metadata files of Iceberg tables; locations are taken literally.

Metadata name files by their complete paths, which any writer may choose. Only those are read that are in the table's
own folder or in an allowed one.
"""

from __future__ import annotations

import gzip
import os
import re
from io import BytesIO

from pyarrow.fs import FileSystem
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from catalog.errors import CatalogError, UnreadableMetadataError
from catalog.files.failures import storage_errors
from catalog.files.object_stores import s3_file_system
from catalog.iceberg.places import HIDDEN, METADATA
from catalog.settings.places import require_files

MOST_BYTES = 256 << 20
"""Maximum size of a metadata file, unpacked; 10,000 snapshots have some 10 MB."""

_LOCAL = re.compile("file:/+")
_METADATA_FILES = (".json", ".avro", ".gz")
_GZIP = b"\x1f\x8b"


class _LiteralFileIO(PyArrowFileIO):
    """PyIceberg's file access, but `#` and `?` are ordinary characters of a path, as in Hadoop.

    It reaches S3 with the settings of all other requests: time-outs, attempts and certificates.
    """

    def __init__(self, properties: Properties, folder: str) -> None:
        """Set the folder of the table."""
        super().__init__(properties)
        self._folder = folder

    def new_input(self, location: str) -> PyArrowFile:
        """Return a file to read.

        Raises:
            LocationNotAllowedError: It is neither in the table's folder nor in an allowed one.
        """
        require_files([location], [self._folder])
        return super().new_input(location)

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Return scheme, authority and path of a location."""
        scheme, mark, rest = location.partition("://")
        if _LOCAL.match(location) or not mark:
            return "file", "", os.path.abspath(_LOCAL.sub("/", location, count=1))
        authority, _, path = rest.partition("/")
        if scheme in ("hdfs", "viewfs"):
            return scheme, authority, f"/{path}"
        return scheme, authority, f"{authority}/{path}"

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        return s3_file_system(netloc or "")


def file_io(location: str) -> FileIO:
    """Return the file access for a table, given its folder or the location of one of its metadata files."""
    io = load_file_io({}, location)
    folder = table_folder(location if location.endswith(_METADATA_FILES) else f"{location}/")
    return _LiteralFileIO(io.properties, folder) if type(io) is PyArrowFileIO else io


def table_folder(metadata_location: str) -> str:
    """Return the folder of the table that owns a metadata file, according to the standard folder names."""
    folder = metadata_location.rpartition("/")[0]
    for name in (METADATA, HIDDEN):
        folder = folder.removesuffix(f"/{name}")
    return folder


def read_contents(location: str) -> bytes:
    """Return the contents of a metadata file, unpacked if it is compressed.

    Raises:
        OSError, EOFError: It cannot be read, or is damaged.
        ValueError: It has more bytes than metadata have: a small file can unpack to more than the memory holds.
    """
    with file_io(location).new_input(location).open() as stream:
        stream.seek(0, os.SEEK_END)
        size = stream.tell()
        stream.seek(0)
        contents = stream.read() if size <= MOST_BYTES else b""
    if contents.startswith(_GZIP):
        with gzip.open(BytesIO(contents)) as unpacked:
            contents = unpacked.read(MOST_BYTES + 1)
        size = len(contents)
    if size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes, the maximum of metadata")
    return contents


def metadata_error(table: str, path: str, reason: str, cause: BaseException | None) -> CatalogError:
    """Return the error of a table with a metadata file that could not be read.

    Args:
        table: Its name, `database.name`.
        reason: The reader's message.
        cause: The reader's error.

    Returns:
        `StorageError`, with which operations are tried again, if the storage did not answer or refused;
        `UnreadableMetadataError` if the file is missing or damaged.
    """
    return storage_failure(path, cause) or UnreadableMetadataError(table, path, reason)


def storage_failure(path: str, cause: BaseException | None) -> CatalogError | None:
    """Return the error of a storage that did not answer or refused, from that of a file's reader.

    Returns:
        None if the file is missing or damaged.
    """
    if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError | gzip.BadGzipFile):
        try:
            with storage_errors(path):
                raise cause
        except CatalogError as error:
            return error
    return None
