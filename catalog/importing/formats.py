"""File formats of Hive tables, from the names of their input formats and SerDes."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.errors import UnsupportedSourceTableError
from catalog.metastores.types import HiveStorage
from catalog.model import FileFormat

_HIVE = "org.apache.hadoop.hive."

_TEXT = "org.apache.hadoop.mapred.TextInputFormat"
_INPUT_FORMATS: Mapping[str, FileFormat] = {
    f"{_HIVE}ql.io.parquet.MapredParquetInputFormat": FileFormat.PARQUET,
    "parquet.hive.MapredParquetInputFormat": FileFormat.PARQUET,
    "parquet.hive.DeprecatedParquetInputFormat": FileFormat.PARQUET,
    f"{_HIVE}ql.io.orc.OrcInputFormat": FileFormat.ORC,
    f"{_HIVE}ql.io.avro.AvroContainerInputFormat": FileFormat.AVRO,
    f"{_HIVE}ql.io.RCFileInputFormat": FileFormat.RCFILE,
    "org.apache.hadoop.mapred.SequenceFileInputFormat": FileFormat.SEQUENCEFILE,
    _TEXT: FileFormat.TEXTFILE,
}

_SERDES: Mapping[str, FileFormat] = {
    f"{_HIVE}ql.io.parquet.serde.ParquetHiveSerDe": FileFormat.PARQUET,
    "parquet.hive.serde.ParquetHiveSerDe": FileFormat.PARQUET,
    f"{_HIVE}ql.io.orc.OrcSerde": FileFormat.ORC,
    f"{_HIVE}serde2.avro.AvroSerDe": FileFormat.AVRO,
    f"{_HIVE}serde2.JsonSerDe": FileFormat.JSONFILE,
    "org.apache.hive.hcatalog.data.JsonSerDe": FileFormat.JSONFILE,
    "org.openx.data.jsonserde.JsonSerDe": FileFormat.JSONFILE,
}
"""The SerDes that read only one format."""

_PROVIDERS: Mapping[str, FileFormat] = {
    "parquet": FileFormat.PARQUET,
    "orc": FileFormat.ORC,
    "avro": FileFormat.AVRO,
    "json": FileFormat.JSONFILE,
    "text": FileFormat.TEXTFILE,
    "csv": FileFormat.TEXTFILE,
}
"""Spark's names of formats; its own tables have placeholders instead of Hive's classes."""

_CSV_OPTIONS = {"header": "true"}
"""The options of CSV files that Calve reads; other CSV files are only recorded, as text."""


def file_format(what: str, storage: HiveStorage, provider: str | None = None) -> FileFormat:
    """Return the format of a table's or a partition's files.

    Args:
        what: The table or partition, for messages.
        provider: Spark's name of the format, if the table is one of Spark's own.

    Raises:
        UnsupportedSourceTableError: The catalog does not know the format.
    """
    if provider is not None:
        return _provided(what, provider, storage.serde_parameters)
    by_input, by_serde = _INPUT_FORMATS.get(storage.input_format or ""), _SERDES.get(storage.serde or "")
    if by_input is None and (storage.input_format is not None or by_serde is None):
        raise UnsupportedSourceTableError(
            f"{what} has the unknown input format {storage.input_format} and serde {storage.serde}; the catalog "
            f"supports {', '.join(known.value for known in FileFormat)}"
        )
    if by_input is None or by_serde is None or by_input is by_serde:
        return by_input or by_serde or FileFormat.TEXTFILE
    if storage.input_format == _TEXT and by_serde is FileFormat.JSONFILE:
        return by_serde
    raise UnsupportedSourceTableError(
        f"{what} has the input format {storage.input_format} ({by_input}), but the serde {storage.serde} ({by_serde}); "
        "correct one of them in the source"
    )


def _provided(what: str, provider: str, options: Mapping[str, str]) -> FileFormat:
    known_format = _PROVIDERS.get(provider)
    if known_format is None:
        raise UnsupportedSourceTableError(
            f"{what} is a Spark table of the format {provider!r}, which cannot be imported; supported formats: "
            f"{', '.join(_PROVIDERS)}"
        )
    settings = {name: value.lower() for name, value in options.items() if name not in ("path", "serialization.format")}
    return FileFormat.CSV if provider == "csv" and settings == _CSV_OPTIONS else known_format
