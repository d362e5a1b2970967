"""Source files as users have them: compressed, with line breaks in values, JSON arrays, and Avro."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import SourceFileError

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

TABLE = "shop.orders"
CSV = {"source_format": "csv", "source_options": {"header": "true"}}
LONG_VALUES = {"source_format": "csv", "source_options": {"header": "true", "multiLine": "true"}}
JSON = {"source_format": "json", "source_options": {}}
AVRO = {"source_format": "avro", "source_options": {}}
TYPES = {"columns": [("id", "int"), ("note", "string")]}


def zst(content: bytes) -> bytes:
    return bytes(pyarrow.compress(content, codec="zstd", asbytes=True))


PACKED: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zst}


def rows_of(spark: SparkSession, catalog: Catalog) -> list[tuple[Any, ...]]:
    from spark_jobs.reading.tables import read_table

    rows = read_table(spark, TABLE, catalog=catalog).select("id", "note", "day").collect()
    return sorted(tuple(row) for row in rows)


@pytest.fixture
def loader(make_loader: Callable[..., Any]) -> Any:
    return make_loader(keys={"day": "int"})


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("suffix", PACKED)
def test_compressed_files_are_loaded_and_their_lines_named(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, suffix: str
) -> None:
    pack = PACKED[suffix]
    (tmp_path / f"a.csv.{suffix}").write_bytes(pack(b"id,note,day\n1,x,1\n2,y,2\n"))
    loader.load(tmp_path / f"a.csv.{suffix}", **CSV, **TYPES)
    (tmp_path / f"a.json.{suffix}").write_bytes(pack(b'{"id": 3, "note": "z", "day": 3}\n'))
    loader.load(tmp_path / f"a.json.{suffix}", **JSON)
    assert rows_of(spark, catalog) == [(1, "x", 1), (2, "y", 2), (3, "z", 3)]
    (tmp_path / f"b.csv.{suffix}").write_bytes(pack(b"id,note,day\n4,x,4\nmany,y,4\n"))
    with pytest.raises(SourceFileError, match=rf"b\.csv\.{suffix}, line 3: column id: 'many' is no int"):
        loader.load(tmp_path / f"b.csv.{suffix}", **CSV)
    (tmp_path / f"b.json.{suffix}").write_bytes(pack(b'{"id": 4, "day": 4}\n{"id": "many", "day": 4}\n'))
    with pytest.raises(SourceFileError, match=rf"b\.json\.{suffix}, line 2: column id: 'many' is no int"):
        loader.load(tmp_path / f"b.json.{suffix}", **JSON)


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("multi_line", ["true", "false"])
@pytest.mark.parametrize("given", [{}, {"quote": "'"}, {"escape": "\\"}], ids=["default", "quote", "escape"])
def test_quotes_in_quoted_values_are_read_as_they_are_written(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, given: dict[str, str], multi_line: str
) -> None:
    quote, escape = given.get("quote", '"'), given.get("escape")
    notes = [f"a {quote}b{quote}, c", f"{quote}{quote}", "plain", *([] if escape else ["c:\\dir\\"])]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file, quotechar=quote, escapechar=escape, doublequote=not escape, quoting=csv.QUOTE_ALL)
        writer.writerows([("id", "note", "day"), *((number, note, 1) for number, note in enumerate(notes))])
    options = {"header": "true", "multiLine": multi_line, **given}
    loader.load(tmp_path / "a.csv", source_format="csv", source_options=options, **TYPES)
    assert [note for _, note, _ in rows_of(spark, catalog)] == notes


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("text", [CSV, JSON], ids=["csv", "json"])
def test_a_new_table_has_the_declared_types(
    loader: Any, catalog: Catalog, tmp_path: Path, text: dict[str, Any]
) -> None:
    content = "id,note,code,day\n1,abc,x,1\n" if text is CSV else '{"id": 1, "note": "abc", "code": "x", "day": 1}\n'
    (tmp_path / "a").write_text(content)
    types = {"id": "smallint", "note": "varchar(3)", "code": "char(2)"}
    loader.load(tmp_path / "a", **text, columns=list(types.items()))
    assert {column.name: column.type for column in catalog.get_table(TABLE).columns} == types
    (tmp_path / "b").write_text(content.replace("abc", "abcd"))
    with pytest.raises(SourceFileError, match=r"column note: 'abcd' is no varchar\(3\)"):
        loader.load(tmp_path / "b", **text)


@pytest.mark.long
@on_sqlite
def test_no_types_are_inferred_without_rows(loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,note,day\n")
    with pytest.raises(SourceFileError, match=r"no rows to infer types from; .* in `columns` the types of id, note$"):
        loader.load(tmp_path / "a.csv", **CSV)
    assert catalog.list_tables() == []
    loader.load(tmp_path / "a.csv", **CSV, **TYPES)
    (tmp_path / "b.csv").write_text("id,note,day\n1,x,1\n")
    loader.load(tmp_path / "b.csv", **CSV)
    assert rows_of(spark, catalog) == [(1, "x", 1)]


@pytest.mark.long
@on_sqlite
def test_values_with_line_breaks_keep_their_lines(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    good = tmp_path / "a.csv"
    good.write_text('id,note,day\n1,"first\nsecond\n",1\n2,plain,1\n')
    advice = r"line 2: 1,\"first \(if values have line breaks, set multiLine"
    with pytest.raises(SourceFileError, match=advice) as refusal:
        loader.load(good, **CSV, **TYPES)
    assert str(refusal.value).count("set multiLine") == 1
    loader.load(good, **LONG_VALUES, **TYPES)
    assert rows_of(spark, catalog) == [(1, "first\nsecond\n", 1), (2, "plain", 1)]
    (tmp_path / "b.csv").write_text('id,note,day\n3,"a\nb",3\nmany,"c\nd",3\n4,e,soon\n5,"x\ny",\n')
    with pytest.raises(SourceFileError) as refused:
        loader.load(tmp_path / "b.csv", **LONG_VALUES)
    assert "b.csv, line 4: column id: 'many' is no int" in str(refused.value)
    assert "b.csv, line 7: partition key day is null" in str(refused.value)


@on_sqlite
@pytest.mark.parametrize("line", ["id,note,day", '"ID","note","day"'])
def test_a_header_is_not_loaded_as_a_row(loader: Any, catalog: Catalog, tmp_path: Path, line: str) -> None:
    (tmp_path / "a.csv").write_text(f"{line}\nx,y,z\n")
    columns = [(name, "string") for name in ("id", "note", "day")]
    settings = {"source_format": "csv", "keys": [("day", "string")], "columns": columns}
    with pytest.raises(SourceFileError, match=r"a\.csv has the names of the columns in line 1, .* set it to true"):
        loader.load(tmp_path / "a.csv", **settings, source_options={"header": "false"})
    assert catalog.list_tables() == []


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("separator", ["\t", r"\t", r"\\", ";"])
def test_lines_with_any_delimiter_are_named(loader: Any, tmp_path: Path, separator: str) -> None:
    text = "id,note,day\n1,x,1\nmany,y,2\n".replace(",", {r"\t": "\t", r"\\": "\\"}.get(separator, separator))
    (tmp_path / "a.csv").write_text(text)
    options = {"header": "true", "sep": separator}
    with pytest.raises(SourceFileError, match=r"a\.csv, line 3: column id: 'many' is no int"):
        loader.load(tmp_path / "a.csv", source_format="csv", source_options=options, **TYPES)


ARRAY = '[\n  {"id": 1, "note": "x", "day": 1},\n  {"id": 2,\n   "note": "y", "day": 2}\n]\n'
LINES = '{"id": 3, "note": "z", "day": 3}\n{"id": 4, "note": null, "day": 4}\n'
RECORD = '{\n  "id": 5,\n  "note": "long",\n  "day": 5\n}\n'


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}, {"multiline": "false"}])
def test_arrays_and_lines_of_json_are_told_apart_by_file(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, options: dict[str, str]
) -> None:
    source = tmp_path / "raw"
    source.mkdir()
    for name, text in {"a": ARRAY, "b": LINES, "c": RECORD, "d": '[{"id": 6, "day": 6}, {"id": 7, "day": 6}]'}.items():
        (source / f"{name}.json").write_text(text)
    loader.load(source, source_format="json", source_options=options, **TYPES)
    expected = [(1, "x", 1), (2, "y", 2), (3, "z", 3), (4, None, 4), (5, "long", 5), (6, None, 6), (7, None, 6)]
    assert rows_of(spark, catalog) == expected


@on_sqlite
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ARRAY.replace('"id": 2', '"id": "two"'), "a.json, line 3: column id: 'two' is no int"),
        (ARRAY.replace('"day": 2', '"day": null'), "a.json, line 3: partition key day is null"),
        (ARRAY.replace('"y", ', '"y" '), "a.json, line 4: it is not JSON: Expecting ',' delimiter"),
        (LINES.replace('"id": 4', '"id": true'), "a.json, line 2: column id: 'true' is no int"),
        (LINES.replace('{"id": 3', '{"id": '), "a.json, line 1: {"),
    ],
)
def test_bad_records_of_json_are_named_by_their_lines(loader: Any, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(SourceFileError) as refused:
        loader.load(tmp_path / "a.json", **JSON, **TYPES)
    assert words in str(refused.value)


@pytest.mark.long
@given(
    records=st.lists(
        st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=5) | st.integers() | st.lists(st.booleans())),
        min_size=1,
        max_size=8,
    ),
    indent=st.sampled_from([None, 0, 2]),
)
def test_records_of_a_document_begin_on_their_lines(records: list[dict[str, Any]], indent: int | None) -> None:
    from spark_jobs.reading.json_documents import records_of

    text = "\n" + json.dumps(records, indent=indent, ensure_ascii=False)
    found = list(records_of(text))
    texts = json.loads(text, parse_int=str)
    assert [record for _, record in found] == texts
    lines, after = text.split("\n"), 0
    for number, record in found:
        # The record is what the text from its line on begins with, behind brackets and commas of the array.
        assert number >= max(after, 1)
        rest = "\n".join(lines[number - 1 :])
        starts = [at for at, char in enumerate(lines[number - 1]) if char == "{"]
        decoder = json.JSONDecoder(parse_int=str)
        assert any(_decodes(decoder, rest, at, record) for at in starts)
        after = number


def _decodes(decoder: json.JSONDecoder, text: str, at: int, record: object) -> bool:
    try:
        return bool(decoder.raw_decode(text, at)[0] == record)
    except ValueError:
        return False


@pytest.mark.long
@pytest.mark.usefixtures("avro_package")
@on_sqlite
def test_avro_files_are_loaded(loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    source = tmp_path / "raw"
    source.mkdir()

    def write(name: str, *rows: dict[str, Any], **types: str) -> None:
        fields = [{"name": column, "type": ["null", kind]} for column, kind in types.items()]
        with (source / f"{name}.avro").open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows)

    write("a", {"id": 1, "note": "x", "day": 1}, id="int", note="string", day="int")
    write("b", {"day": 2, "id": 2}, day="int", id="long")
    loader.load(source, **AVRO)
    assert rows_of(spark, catalog) == [(1, "x", 1), (2, None, 2)]
    assert {column.name: column.type for column in catalog.get_table(TABLE).columns} == {
        "id": "bigint",
        "note": "string",
    }
    write("c", {"id": 3, "day": None}, id="long", day="int")
    with pytest.raises(SourceFileError, match=r"c\.avro: partition key day is null"):
        loader.load(source, **AVRO)
    (source / "c.avro").write_bytes(b"no Avro")
    write("d", {"id": 4, "note": "z", "day": 4}, id="long", note="string", day="int")
    loader.load(source, **AVRO, bad_files="skip")
    assert rows_of(spark, catalog)[2:] == [(4, "z", 4)]
    assert "cannot be read as avro" in catalog.set_aside_files(TABLE)[0].reason
