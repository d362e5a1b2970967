"""Options of Spark's readers: those that are unknown, or that would lose rows in silence, are refused."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from catalog.errors import InvalidConfigurationError
from catalog.settings.reader_options import ENCODINGS, READER_OPTIONS, check_encoding, check_reader_options

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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.spark
def test_encodings_are_those_of_spark(spark: SparkSession) -> None:
    names = spark._jvm.org.apache.spark.sql.catalyst.util.CharsetProvider.VALID_CHARSETS()
    assert sorted(map(str.lower, ENCODINGS)) == sorted(names.mkString(",").split(","))


@pytest.mark.parametrize(
    ("name", "advice"), [("latin1", "did you mean ISO-8859-1?"), ("utf8", "did you mean UTF-8?"), ("klingon", "")]
)
def test_encodings_that_spark_does_not_read_are_refused(name: str, advice: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"source_options has charset {name}, .*{advice}"):
        check_encoding("demo.orders", {"charset": name})


def test_encodings_are_known_in_any_case() -> None:
    for name in ENCODINGS:
        check_encoding("demo.orders", {"Encoding": name.lower(), "header": "true"})
