"""Columns and storage descriptors as Glue describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from catalog.doors.entries.kept import COLUMN_PARAMETERS, GLUE, SKEW
from catalog.metastores.types import HiveSkew, HiveStorage
from catalog.model import Column

_OWN_FIELDS = ("AdditionalLocations", "SchemaReference")
_UNTYPED = "string"


def columns_from_glue(given: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return columns, given a list of `Column`; one without a type is a string."""
    return tuple(Column(column["Name"], column.get("Type") or _UNTYPED, column.get("Comment")) for column in given)


def columns_to_glue(columns: Iterable[Column], parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return a list of `Column`."""
    shown = []
    for column in columns:
        fields: dict[str, Any] = {"Name": column.name, "Type": column.type}
        if column.comment is not None:
            fields["Comment"] = column.comment
        if parameters and column.name in parameters:
            fields["Parameters"] = parameters[column.name]
        shown.append(fields)
    return shown


def column_parameters(*given: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parameters of those columns that have some, by their names in lower case."""
    columns = (column for columns in given for column in columns)
    return {column["Name"].strip().lower(): column["Parameters"] for column in columns if "Parameters" in column}


def storage_from_glue(given: Mapping[str, Any], *, with_columns: bool, **own: Any) -> HiveStorage:
    """Return the storage of a `StorageDescriptor`.

    Args:
        with_columns: Whether the descriptor is that of a partition, which has columns of its own.
        own: More of Glue's own fields.
    """
    serde = given.get("SerdeInfo", {})
    own = {**{field: given[field] for field in _OWN_FIELDS if field in given}, **own}
    columns, skew = given.get("Columns"), _skew_from_glue(given.get(SKEW, {}))
    written = _skew_to_glue(skew)
    if any(written[field] != value for field, value in given.get(SKEW, {}).items()):
        own[SKEW] = given[SKEW]
    if with_columns and (parameters := column_parameters(columns or ())):
        own[COLUMN_PARAMETERS] = parameters
    return HiveStorage(
        input_format=given.get("InputFormat"),
        serde=serde.get("SerializationLibrary"),
        serde_parameters=serde.get("Parameters", {}),
        output_format=given.get("OutputFormat"),
        serde_name=serde.get("Name"),
        columns=columns_from_glue(columns) if with_columns and columns is not None else None,
        is_compressed=given.get("Compressed", False),
        bucket_columns=tuple(given.get("BucketColumns", ())),
        bucket_count=given.get("NumberOfBuckets", 0),
        sort_columns=tuple((order["Column"], order["SortOrder"]) for order in given.get("SortColumns", ())),
        parameters=given.get("Parameters", {}),
        skew=skew,
        is_stored_as_subdirectories=given.get("StoredAsSubDirectories", False),
        extra={GLUE: own} if own else {},
    )


def storage_to_glue(
    storage: HiveStorage, columns: Iterable[Column] | None, location: str | None, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the `StorageDescriptor` of a storage.

    Args:
        columns: None to leave out the columns.
        parameters: The parameters of columns, by name.
    """
    own = storage.extra.get(GLUE, {})
    serde = {
        "Name": storage.serde_name,
        "SerializationLibrary": storage.serde,
        "Parameters": dict(storage.serde_parameters),
    }
    shown: dict[str, Any] = {
        "Columns": None if columns is None else columns_to_glue(columns, own.get(COLUMN_PARAMETERS, parameters)),
        "Location": location,
        "InputFormat": storage.input_format,
        "OutputFormat": storage.output_format,
        "Compressed": storage.is_compressed,
        "NumberOfBuckets": storage.bucket_count,
        "SerdeInfo": {name: value for name, value in serde.items() if value is not None},
        "BucketColumns": list(storage.bucket_columns),
        "SortColumns": [{"Column": name, "SortOrder": order} for name, order in storage.sort_columns],
        "Parameters": dict(storage.parameters),
        SKEW: own.get(SKEW) or _skew_to_glue(storage.skew or HiveSkew()),
        "StoredAsSubDirectories": bool(storage.is_stored_as_subdirectories),
        **{field: own[field] for field in _OWN_FIELDS if field in own},
    }
    return {name: value for name, value in shown.items() if value is not None}


def _skew_from_glue(given: Mapping[str, Any]) -> HiveSkew:
    locations = given.get("SkewedColumnValueLocationMaps", {})
    return HiveSkew(
        tuple(given.get("SkewedColumnNames", ())),
        tuple(map(_values, given.get("SkewedColumnValues", ()))),
        tuple((_values(text), place) for text, place in locations.items()),
    )


def _skew_to_glue(skew: HiveSkew) -> dict[str, Any]:
    return {
        "SkewedColumnNames": list(skew.columns),
        "SkewedColumnValues": list(map(_joined, skew.values)),
        "SkewedColumnValueLocationMaps": {_joined(values): place for values, place in skew.locations},
    }


def _joined(values: Iterable[str]) -> str:
    """Return the values of several columns as one string: each after its length.

    Source: `ConverterUtils` of AWS Glue Data Catalog Client for Apache Hive Metastore.
    """
    return "".join(f"{len(value)}${value}" for value in values)


def _values(text: str) -> tuple[str, ...]:
    """Return the values of a joined string; any other string is one value."""
    values, rest = [], text
    while rest:
        length, _, rest = rest.partition("$")
        if not (length.isascii() and length.isdigit()) or int(length) > len(rest):
            return (text,)
        values.append(rest[: int(length)])
        rest = rest[int(length) :]
    return tuple(values)
