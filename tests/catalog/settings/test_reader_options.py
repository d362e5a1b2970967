"""Options of Spark's readers: those that are unknown, or that would lose rows in silence, are refused."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from catalog.errors import InvalidConfigurationError
from catalog.settings.reader_options import READER_OPTIONS, check_reader_options

NOT_FOR_LOADS = {
    # Of writers.
    *("codec", "compression", "escapeQuotes", "ignoreNullFields", "orc.compress", "parquet.compression", "pretty"),
    *("quoteAll", "recordName", "recordNamespace", "writeNonAsciiCharacterAsCodePoint"),
    # Of places and files.
    *("avroSchemaUrl", "extension", "ignoreExtension"),
    # Decided by Calve.
    *("avroSchema", "columnNameOfCorruptRecord", "enforceSchema", "mode", "singleVariantColumn", "useUnsafeRow"),
}
_READERS = (
    *("catalyst.csv.CSVOptions", "catalyst.json.JSONOptions", "avro.AvroOptions"),
    *("execution.datasources.parquet.ParquetOptions", "execution.datasources.orc.OrcOptions"),
)


@pytest.mark.spark
def test_each_option_of_sparks_readers_is_allowed_or_left_out_for_a_reason(spark: SparkSession) -> None:
    of_spark = set()
    for name in _READERS:
        companion = spark._jvm.java.lang.Class.forName(f"org.apache.spark.sql.{name}$").getField("MODULE$").get(None)
        of_spark |= set(companion.getAllOptions().mkString(",").split(","))
    assert set(READER_OPTIONS) | NOT_FOR_LOADS == of_spark
    assert not set(READER_OPTIONS) & NOT_FOR_LOADS


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("delim", "source_options has delim, which is no option for source files; did you mean delimiter"),
        ("fieldTerminator", "has fieldTerminator, .*; docs/loading.md lists"),
        ("multiline_", "has multiline_, .* did you mean multiLine?"),
        ("Mode", "has Mode, but no load leaves out rows in silence; see bad_files: skip"),
        ("ignoreCorruptFiles", "no load leaves out rows"),
        ("pathGlobFilter", "pathGlobFilter, which say where files are"),
        ("fs.s3a.endpoint", "which say where files are"),
    ],
)
def test_other_options_are_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message):
        check_reader_options("demo.orders", ["header", name])


def test_options_are_known_in_any_case() -> None:
    check_reader_options("demo.orders", [*READER_OPTIONS, *map(str.lower, READER_OPTIONS)])
