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
"""Maximum size of a metadata file, a manifest list or a manifest; 10,000 snapshots have some 10 MB of metadata.

Compressed metadata are limited after unpacking, and manifests also by their blocks (`catalog.iceberg.avro`).
"""

_FREE_CONTAINERS, _BYTES_A_CONTAINER = 100_000, 16
"""Objects and lists that metadata may have; larger metadata one more for so many bytes, where real ones have over 30.

Each takes up to 200 bytes of memory.
"""

_PROBED_BYTES = 16 << 20
"""Of files with more bytes, the first ones are read before the others. Most manifests have at most 8 MB."""

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
        ValueError: It has more bytes, or more objects and lists, than metadata have: a small file can unpack to more
            than the memory holds.
    """
    contents = read_file(file_io(location), location)
    if contents.startswith(_GZIP):
        with gzip.open(BytesIO(contents)) as unpacked:
            contents = unpacked.read(MOST_BYTES + 1)
        _require_fitting(len(contents))
    most = _FREE_CONTAINERS + len(contents) // _BYTES_A_CONTAINER
    # Those in strings are counted, too.
    if (count := contents.count(b"{") + contents.count(b"[")) > most:
        raise ValueError(
            f"it has {count:,} objects and lists in {len(contents):,} bytes, for which {most:,} are allowed"
        )
    return contents


def read_file(io: FileIO, location: str, length: int | None = None, start: bytes = b"") -> bytes:
    """Return the bytes of a file that metadata name; of a file that is refused, few are read.

    Args:
        length: The bytes that the file must have; None for any number.
        start: With which a large file must begin.

    Raises:
        LocationNotAllowedError: It is neither in the table's folder nor in an allowed one.
        OSError: It cannot be read.
        ValueError: It has another length or beginning, or more bytes than metadata have.
    """
    with io.new_input(location).open() as stream:
        stream.seek(0, os.SEEK_END)
        size = stream.tell()
        if length is not None and size != length:
            raise ValueError(f"it has {size:,} bytes, {length:,} are recorded")
        _require_fitting(size)
        stream.seek(0)
        # One request more, which smaller files are not worth.
        if size > _PROBED_BYTES and start:
            if stream.read(len(start)) != start:
                raise ValueError(f"it does not begin with {start!r}")
            stream.seek(0)
        return stream.read()


def require_manifest(io: FileIO, location: str) -> None:
    """Check with one request that there is a file that may be a manifest.

    Raises:
        LocationNotAllowedError: It is neither in the table's folder nor in an allowed one.
        OSError: It does not exist, or the storage does not answer.
        ValueError: It has more bytes than manifests have.
    """
    _require_fitting(len(io.new_input(location)))


def _require_fitting(size_bytes: int) -> None:
    if size_bytes > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes, the maximum of metadata")


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
