"""Avro files of Iceberg's metadata: codecs, damage, limits, and files that a writer's metadata name."""

from __future__ import annotations

import json
import re
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField, StringType

from catalog.errors import LocationNotAllowedError
from catalog.iceberg import avro, storage
from catalog.iceberg.avro import AvroContainer, Decoder, read_content, reader_of, snapshot_manifests, written_schema
from catalog.iceberg.named_files import UnreadableFileError, avro_rows
from catalog.iceberg.storage import file_io

pytestmark = pytest.mark.smoke

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "manifest_file",
    "fields": [{"name": "manifest_path", "type": "string", "field-id": 500}],
}
PATHS = Schema(NestedField(500, "manifest_path", StringType(), required=True))
ROWS = [{"manifest_path": f"/lake/t/metadata/m{number}.avro"} for number in range(600)]


def container(rows: Sequence[dict[str, str]] = ROWS, codec: str = "deflate", interval: int = 1_000) -> bytes:
    """Return a file with many blocks."""
    output = BytesIO()
    fastavro.writer(output, SCHEMA, rows, "null" if codec in PACKED else codec, sync_interval=interval)
    content = output.getvalue()
    return _packed(content, codec) if codec in PACKED else content


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "zstandard": lambda block: pa.Codec("zstd").compress(block, asbytes=True),
    "snappy": lambda block: pa.Codec("snappy").compress(block, asbytes=True) + zlib.crc32(block).to_bytes(4, "big"),
}
"""Codecs for which FastAvro needs other packages: compression of a block."""


def _packed(content: bytes, codec: str) -> bytes:
    """Return a file without compression with compressed blocks."""
    sync = content[-16:]
    header = json.dumps(SCHEMA).encode()
    parts = [b"Obj\x01\x04", *map(_text, (b"avro.schema", header, b"avro.codec", codec.encode())), b"\0", sync]
    for count, block in AvroContainer(content).blocks():
        parts += [_number(count), _text(PACKED[codec](block)), sync]
    return b"".join(parts)


def _text(text: bytes) -> bytes:
    return _number(len(text)) + text


def _number(number: int) -> bytes:
    """Return a number that is not negative in Avro's encoding."""
    number, encoded = number << 1, bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def paths(content: bytes) -> list[str]:
    records = AvroContainer(content).records(lambda written: reader_of(written_schema(written), PATHS))
    return [record[0] for record in records]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "zstandard", "snappy"])
def test_every_codec_of_avro_is_read(codec: str) -> None:
    assert paths(container(codec=codec)) == [row["manifest_path"] for row in ROWS]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "zstandard", "snappy"])
def test_a_file_that_ends_within_a_block_is_damaged(codec: str) -> None:
    content = container(codec=codec)
    for length in set(range(0, len(content), 97)) - set(_ends(content)):
        with pytest.raises((ValueError, EOFError)):
            paths(content[:length])


def _ends(content: bytes) -> list[int]:
    """Return the ends of the header and of each block."""
    sync = re.escape(content[-16:])
    return [match.end() for match in re.finditer(sync, content)]


def test_a_file_that_ends_between_two_blocks_has_another_length_than_recorded(tmp_path: Path) -> None:
    path, content = tmp_path / "list.avro", container()
    path.write_bytes(content[: _ends(content)[3]])
    assert 0 < len(paths(path.read_bytes())) < len(ROWS)
    with pytest.raises(UnreadableFileError, match=r"it has [\d,]+ bytes, [\d,]+ are recorded"):
        list(avro_rows(file_io(str(path)), str(path), PATHS, len(content)))


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstandard", "snappy"])
def test_a_block_that_unpacks_to_too_much_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fitting, larger = ([{"manifest_path": "a" * length}] for length in (9_000, 2_000_000))
    bomb = container(larger, codec)
    monkeypatch.setattr(avro, "MOST_BLOCK_BYTES", 10_000)
    assert paths(container(fitting, codec)) == ["a" * 9_000]
    assert len(bomb) < 200_000
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than 10,000 bytes"):
        paths(bomb)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_block_with_more_records_than_bytes_is_refused() -> None:
    header = json.dumps({"type": "record", "name": "r", "fields": []}).encode()
    content = b"Obj\x01\x04" + b"".join(map(_text, (b"avro.schema", header, b"avro.codec", b"null"))) + b"\0"
    content += bytes(16) + b"\xfe\xff\xff\xff\x0f" + _text(b"ab") + bytes(16)
    with pytest.raises(ValueError, match="a block of 2 bytes has 2147483647 records"):
        list(AvroContainer(content).blocks())


def test_records_that_take_less_than_a_bit_are_refused() -> None:
    bomb = container([{"manifest_path": ""}] * 20_000, interval=1 << 20)
    assert len(bomb) < 500
    with pytest.raises(ValueError, match="has 20000 records"):
        paths(bomb)


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstandard", "snappy"])
def test_similar_paths_in_one_block_are_read(codec: str) -> None:
    rows = [{"manifest_path": f"/a/{number}"} for number in range(50_000)]
    assert len(paths(container(rows, codec, interval=1 << 22))) == len(rows)


@pytest.mark.parametrize("size", [11 << 20, 10 << 20])
@pytest.mark.parametrize("length", [None, 7])
def test_other_files_than_manifests_are_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, length: int | None
) -> None:
    monkeypatch.setattr(storage, "MOST_BYTES", 10 << 20)
    monkeypatch.setattr(storage, "_PROBED_BYTES", 1 << 20)
    path = tmp_path / "some.parquet"
    with path.open("wb") as file:
        file.truncate(size)
    tracemalloc.start()
    with pytest.raises(UnreadableFileError, match="are recorded" if length else "maximum of metadata|does not begin"):
        list(avro_rows(file_io(str(path)), str(path), PATHS, length))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


EMPTY = {"type": "record", "name": "empty", "fields": []}
NOTHING: dict[str, Any] = {
    "a record without fields": EMPTY,
    "a record with nothing in it": {**EMPTY, "name": "r", "fields": [{"name": "e", "type": EMPTY, "field-id": 8}]},
    "bytes of length zero": {"type": "fixed", "name": "f", "size": 0},
    "nulls": "null",
}


@pytest.mark.parametrize("item", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("is_map", [False, True])
def test_items_that_take_no_bytes_are_refused(item: Any, is_map: bool) -> None:
    pairs = {"type": "record", "name": "pair", "fields": []}
    pairs["fields"] = [{"name": name, "type": item, "field-id": number} for number, name in ((6, "key"), (7, "value"))]
    odd = {"type": "array", "items": pairs if is_map else item, "element-id": 9} | (
        {"logicalType": "map"} if is_map else {}
    )
    header = json.dumps(
        {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "odd", "type": odd, "field-id": 901}]}
    ).encode()
    content = b"Obj\x01\x04" + b"".join(map(_text, (b"avro.schema", header, b"avro.codec", b"null"))) + b"\0"
    content += bytes(16) + _number(1) + _text(_text(b"/a") + _number(1 << 60) + b"\0") + bytes(16)
    with pytest.raises(ValueError, match="which take no bytes"):
        paths(content)


def test_damaged_blocks_have_an_error() -> None:
    content = bytearray(container())
    for position in range(200, len(content), 101):
        damaged = content.copy()
        damaged[position] ^= 0x55
        try:
            paths(bytes(damaged))
        except (ValueError, EOFError, OverflowError, zlib.error, SystemError, MemoryError):
            continue


LENGTHS = [bytes([length]) for length in (1, 0x13, 0x14, 0x7E)] + [b"\xfe\xff\xff\xff\xff\x3f", b"\xff" * 9 + b"\x01"]
"""Numbers of bytes that are negative, or more than follow."""


@pytest.mark.parametrize(
    "read",
    [
        Decoder.read_bytes,
        Decoder.read_utf8,
        Decoder.skip_bytes,
        Decoder.skip_utf8,
        lambda decoder: decoder.read(decoder.read_int()),
        lambda decoder: decoder.skip(decoder.read_int()),
        lambda decoder: decoder.read_ints(decoder.read_int()),
        lambda decoder: decoder.read_int_bytes_dict(decoder.read_int(), {}),
        lambda decoder: decoder.skip_int_bytes_dict(decoder.read_int()),
        lambda decoder: decoder.skip_int_bytes_dict(1) or decoder.skip_int_bytes_dict(1),
    ],
)
@pytest.mark.parametrize("length", LENGTHS)
def test_nothing_behind_the_bytes_is_read(read: Callable[[Decoder], Any], length: bytes) -> None:
    with pytest.raises(EOFError):
        read(Decoder(length + b"123456789"))


@pytest.mark.parametrize("read", [Decoder.read_boolean, Decoder.read_float, Decoder.read_double])
def test_nothing_behind_the_last_value_is_read(read: Callable[[Decoder], Any]) -> None:
    with pytest.raises(EOFError):
        read(Decoder(b""))


@given(st.binary(max_size=40), st.lists(st.sampled_from([*"ibusdfnmBSU"]), max_size=8))
def test_random_reads_stay_within_random_bytes(contents: bytes, steps: list[str]) -> None:
    reads: dict[str, Callable[[Decoder], Any]] = {
        "i": Decoder.read_int,
        "b": Decoder.read_bytes,
        "u": Decoder.read_utf8,
        "s": Decoder.skip_int,
        "d": Decoder.read_double,
        "f": Decoder.read_float,
        "n": lambda decoder: decoder.read_ints(decoder.read_int()),
        "m": lambda decoder: decoder.read_int_bytes_dict(decoder.read_int(), {}),
        "B": Decoder.skip_bytes,
        "S": Decoder.skip_utf8,
        "U": Decoder.read_boolean,
    }
    decoder = Decoder(contents)
    with suppress(EOFError, UnicodeDecodeError):
        for step in steps:
            value = reads[step](decoder)
            if isinstance(value, bytes):
                assert value in contents
        assert decoder.tell() <= len(contents) + 1
        decoder.require_end()
        assert decoder.tell() == len(contents)


@given(st.dictionaries(st.integers(-(2**40), 2**40), st.binary(max_size=200), max_size=6), st.binary(max_size=3))
def test_a_map_that_is_skipped_is_one_that_is_read(values: dict[int, bytes], rest: bytes) -> None:
    output = BytesIO()
    encoder = BinaryEncoder(output)
    for key, value in values.items():
        encoder.write_int(key)
        encoder.write_bytes(value)
    whole = output.getvalue() + rest
    reading, skipping, read = Decoder(whole), Decoder(whole), dict[int, bytes]()
    reading.read_int_bytes_dict(len(values), read)
    skipping.skip_int_bytes_dict(len(values))
    assert read == values
    assert reading.tell() == skipping.tell() == len(whole) - len(rest)
    for length in range(len(whole) - len(rest)):
        with pytest.raises(EOFError):
            Decoder(whole[:length]).skip_int_bytes_dict(len(values))


def test_a_record_that_is_longer_than_its_block_is_damaged() -> None:
    content = container([{"manifest_path": "secret"}], "null")
    damaged = content.replace(b"\x0csecret", b"\x0esecret")
    assert damaged != content
    with pytest.raises(EOFError):
        paths(damaged)


def test_a_list_does_not_change_how_the_manifests_of_another_table_are_read(tmp_path: Path) -> None:
    shared = str(tmp_path / "victim" / "metadata" / "m.avro")
    lists = []
    for table, length in (("intruder", 7), ("victim", 4_711)):
        manifest = ManifestFile.from_args(
            manifest_path=shared,
            manifest_length=length,
            partition_spec_id=0,
            content=ManifestContent.DATA,
            sequence_number=1,
            min_sequence_number=1,
            added_snapshot_id=1,
            added_files_count=1,
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=1,
            existing_rows_count=0,
            deleted_rows_count=0,
        )
        path = tmp_path / table / "metadata" / "snap.avro"
        path.parent.mkdir(parents=True)
        with write_manifest_list(2, PyArrowFileIO().new_output(str(path)), 1, None, 1, "deflate") as writer:
            writer.add_manifests([manifest])
        snapshot = Snapshot.model_validate({"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": str(path)})
        lists += snapshot_manifests(file_io(str(path)), snapshot)
    assert [listed.manifest_length for listed in lists] == [7, 4_711]


@pytest.mark.parametrize("options", ["?endpoint_override=127.0.0.1:1&scheme=http", "?region=elsewhere"])
def test_no_manifest_is_asked_of_a_server_that_its_path_names(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "/nowhere")
    path = f"s3://lake/t/data{options}/m.avro"
    with pytest.raises(LocationNotAllowedError):
        read_content(file_io("s3://lake/t/metadata/v1.metadata.json"), path)
