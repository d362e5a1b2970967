"""Storage descriptors: the usual one of each file format, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from catalog.errors import UnsupportedSourceTableError
from catalog.importing.formats import file_format
from catalog.metastores.types import HiveSkew, HiveStorage
from catalog.model import Column, FileFormat

_HIVE = "org.apache.hadoop.hive."
_LAZY = f"{_HIVE}serde2.lazy.LazySimpleSerDe"
TEXT_INPUT = "org.apache.hadoop.mapred.TextInputFormat"
_TEXT_OUTPUT = f"{_HIVE}ql.io.HiveIgnoreKeyTextOutputFormat"
_CLASSES: Mapping[FileFormat, tuple[str, str, str]] = {
    FileFormat.PARQUET: (
        f"{_HIVE}ql.io.parquet.MapredParquetInputFormat",
        f"{_HIVE}ql.io.parquet.MapredParquetOutputFormat",
        f"{_HIVE}ql.io.parquet.serde.ParquetHiveSerDe",
    ),
    FileFormat.ORC: (
        f"{_HIVE}ql.io.orc.OrcInputFormat",
        f"{_HIVE}ql.io.orc.OrcOutputFormat",
        f"{_HIVE}ql.io.orc.OrcSerde",
    ),
    FileFormat.AVRO: (
        f"{_HIVE}ql.io.avro.AvroContainerInputFormat",
        f"{_HIVE}ql.io.avro.AvroContainerOutputFormat",
        f"{_HIVE}serde2.avro.AvroSerDe",
    ),
    FileFormat.CSV: (TEXT_INPUT, _TEXT_OUTPUT, _LAZY),
    FileFormat.TEXTFILE: (TEXT_INPUT, _TEXT_OUTPUT, _LAZY),
    FileFormat.JSONFILE: (TEXT_INPUT, _TEXT_OUTPUT, "org.apache.hive.hcatalog.data.JsonSerDe"),
    FileFormat.SEQUENCEFILE: (
        "org.apache.hadoop.mapred.SequenceFileInputFormat",
        f"{_HIVE}ql.io.HiveSequenceFileOutputFormat",
        _LAZY,
    ),
    FileFormat.RCFILE: (
        f"{_HIVE}ql.io.RCFileInputFormat",
        f"{_HIVE}ql.io.RCFileOutputFormat",
        f"{_HIVE}serde2.columnar.LazyBinaryColumnarSerDe",
    ),
}


def _usual(file_format: FileFormat) -> HiveStorage:
    # As Hive and Spark write them, so that most tables and partitions need no details.
    storage = HiveStorage(bucket_count=-1, skew=HiveSkew(), is_stored_as_subdirectories=False)
    if file_format not in _CLASSES:
        return storage
    input_format, output_format, serde = _CLASSES[file_format]
    parameters = {"serialization.format": "1"}
    if file_format is FileFormat.CSV:
        parameters = {"field.delim": ",", "serialization.format": ","}
    return replace(
        storage, input_format=input_format, output_format=output_format, serde=serde, serde_parameters=parameters
    )


USUAL: Mapping[FileFormat, HiveStorage] = {file_format: _usual(file_format) for file_format in FileFormat}
"""File format → the storage descriptor of a table or partition that has no details."""


PATH = "path"
"""The parameter of the SerDe in which Spark stores the location of its own tables."""

VIEW = replace(
    USUAL[FileFormat.TEXTFILE],
    input_format=TEXT_INPUT,
    output_format=_TEXT_OUTPUT,
    serde=None,
    serde_parameters={},
)
"""The storage descriptor of a view, as Hive writes it."""


def recorded_format(storage: HiveStorage, provider: str | None = None) -> FileFormat:
    """Return the format of files; `OTHER` if Calve does not know it, or if its classes contradict one another.

    Args:
        provider: Spark's name of the format, if the table is one of Spark's own.
    """
    try:
        return file_format("", storage, provider)
    except UnsupportedSourceTableError:
        return FileFormat.OTHER


# --- JSON -------------------------------------------------------------------------------------------------------------


def columns_from_json(stored: Iterable[Any]) -> tuple[Column, ...]:
    """Return the columns that `as_json` has written."""
    return tuple(Column(name, column_type, comment) for name, column_type, comment in stored)


def as_json(value: Any) -> Any:
    """Return the value of a field of an entry as JSON values."""
    match value:
        case Column():
            return [value.name, value.type, value.comment]
        case HiveSkew():
            return [as_json(value.columns), as_json(value.values), as_json(value.locations)]
        case tuple() | list():
            return [as_json(member) for member in value]
        case Mapping():
            return {name: as_json(member) for name, member in value.items()}
    return value


def _pairs(stored: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(map(tuple, stored))


def _skew(stored: Any) -> HiveSkew | None:
    if stored is None:
        return None
    columns, values, locations = stored
    return HiveSkew(tuple(columns), _pairs(values), tuple((tuple(names), place) for names, place in locations))


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "columns": lambda stored: None if stored is None else columns_from_json(stored),
    "partition_keys": columns_from_json,
    "bucket_columns": tuple,
    "sort_columns": _pairs,
    "skew": _skew,
}


def from_json(name: str, stored: Any) -> Any:
    """Return the value of the field `name` of an entry, given its JSON."""
    return _READERS[name](stored) if name in _READERS else stored


STORAGE_FIELDS = tuple(field.name for field in fields(HiveStorage))


def _default(name: str) -> Any:
    [field] = (field for field in fields(HiveStorage) if field.name == name)
    return field.default_factory() if field.default_factory is not MISSING else field.default


_DEFAULTS = {name: as_json(_default(name)) for name in STORAGE_FIELDS}


def storage_json(storage: HiveStorage) -> dict[str, Any]:
    """Return a descriptor as JSON values, without those that are missing."""
    every = {name: as_json(getattr(storage, name)) for name in STORAGE_FIELDS}
    return {name: value for name, value in every.items() if value != _DEFAULTS[name]}


def storage_from_json(stored: Mapping[str, Any]) -> HiveStorage:
    """Return the descriptor that `storage_json` has written."""
    return HiveStorage(**{name: from_json(name, value) for name, value in stored.items()})


def without_columns(text: str) -> str:
    """Return the text of a descriptor, whose columns are now those of the table."""
    return storage_text(replace(storage_from_json(json.loads(text)), columns=None))


def storage_text(storage: HiveStorage) -> str:
    """Return a descriptor as JSON, always spelled in the same way."""
    return json.dumps(storage_json(storage), sort_keys=True, separators=(",", ":"))


def qualified(location: str | None) -> str | None:
    """Return a location as a URI: to clients, a plain path would be one of their default file system."""
    return f"file:{location}" if location is not None and location.startswith("/") else location
