from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    AvroCompressionCodec,
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    construct_partition_summaries,
    write_manifest,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from catalog.files.filesystem import FileInfo
from catalog.iceberg.avro import manifest_entries, values_of
from catalog.iceberg.entries import PathSearch, read_entries
from catalog.iceberg.footers.facts import FileFacts
from catalog.iceberg.manifests import ManifestWriter, WrittenManifest, zigzag
from catalog.model import FileFormat
from tests.support.iceberg_files import layout

LONGS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
IDS = st.integers(1, 10_000)
COUNTS = st.dictionaries(IDS, LONGS, max_size=3)
BOUNDS = st.dictionaries(IDS, st.binary(max_size=100), max_size=3)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
# PyIceberg's decoder reads a double as a float.
KEYS: dict[str, tuple[IcebergType, st.SearchStrategy[Any]]] = {
    "number": (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "long": (LongType(), st.integers(-(2**63), 2**63 - 1)),
    "text": (StringType(), TEXTS),
    "day": (DateType(), st.integers(-700_000, 2_900_000)),
    "moment": (TimestamptzType(), st.integers(-(2**62), 2**62)),
    "amount": (DecimalType(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    "flag": (BooleanType(), st.booleans()),
    "ratio": (DoubleType(), st.floats(allow_nan=False, width=32)),
    "code": (BinaryType(), st.binary(max_size=8)),
}
LAYOUT = layout({"a": LongType()}, {name: kind for name, (kind, _) in KEYS.items()})
FACTS = st.builds(
    FileFacts,
    LONGS,
    COUNTS,
    COUNTS,
    COUNTS,
    COUNTS,
    BOUNDS,
    BOUNDS,
    st.one_of(st.none(), st.lists(LONGS, min_size=1, max_size=3).map(tuple)),
    st.just(()),
)
ENTRIES = st.lists(
    st.tuples(
        st.tuples(*(st.one_of(st.none(), values) for _, values in KEYS.values())),
        st.sampled_from([FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO]),
        st.builds(FileInfo, st.text("/ab=é%\U0001f600", min_size=1, max_size=100), LONGS, LONGS),
        FACTS,
    ),
    min_size=1,
    max_size=3,
)


def read(manifest: WrittenManifest) -> list[ManifestEntry]:
    file = ManifestFile.from_args(
        manifest_path=manifest.path,
        manifest_length=manifest.length_bytes,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=7,
        min_sequence_number=7,
        added_snapshot_id=42,
    )
    return file.fetch_manifest_entry(PyArrowFileIO())


def test_names_of_partition_fields_are_those_that_avro_allows(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    keys = {"größe": IntegerType(), "name": StringType()}
    with ManifestWriter(layout({"a": LongType()}, keys), f"{tmp_path}/m-") as writer:
        facts = FileFacts(1, {}, {}, {}, {}, {}, {}, None, ())
        writer.add((3, "x"), FileFormat.PARQUET, FileInfo("/a.parquet", 1, 0), facts)
    [manifest] = writer.manifests
    with Path(manifest.path).open("rb") as content:
        header = fastavro.reader(content)
    fields = {field["name"]: field for field in header.writer_schema["fields"]}
    files = {field["name"]: field for field in fields["data_file"]["type"]["fields"]}
    assert [(field["name"], field["field-id"]) for field in files["partition"]["type"]["fields"]] == [
        ("gr_xF6_xDFe", 1000),
        ("name", 1001),
    ]
    assert [field["name"] for field in json.loads(header.metadata["partition-spec"])] == ["größe", "name"]
    [entry] = read(manifest)
    assert entry.data_file.partition == Record(3, "x")


def expected_file(partition: tuple[Any, ...], file_format: FileFormat, file: FileInfo, facts: FileFacts) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=file_format.value.upper(),
        partition=Record(*partition),
        record_count=facts.row_count,
        file_size_in_bytes=file.size_bytes,
        column_sizes=facts.column_sizes or None,
        value_counts=facts.value_counts or None,
        null_value_counts=facts.null_counts or None,
        nan_value_counts=facts.nan_counts or None,
        lower_bounds=facts.lower_bounds or None,
        upper_bounds=facts.upper_bounds or None,
        split_offsets=None if facts.split_offsets is None else list(facts.split_offsets),
    )


@settings(max_examples=25, deadline=None)
@given(entries=ENTRIES)
def test_pyiceberg_reads_what_was_written(entries: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("manifests")
    with ManifestWriter(LAYOUT, f"{folder}/metadata/1-") as writer:
        for entry in entries:
            writer.add(*entry)
    (manifest,) = writer.manifests
    found = read(manifest)
    for each, entry in zip(found, entries, strict=True):
        assert each.status is ManifestEntryStatus.ADDED
        assert (each.snapshot_id, each.sequence_number, each.file_sequence_number) == (42, 7, 7)
        # Data files are equal for PyIceberg if their paths are.
        assert each.data_file._data == expected_file(*entry)._data
        assert repr(each.data_file.partition) == repr(Record(*entry[0]))
    assert manifest.length_bytes == Path(manifest.path).stat().st_size
    assert manifest.file_count == len(entries)
    assert manifest.row_count == sum(entry[3].row_count for entry in entries)
    assert manifest.partitions == tuple(
        construct_partition_summaries(LAYOUT.spec, LAYOUT.schema, [Record(*entry[0]) for entry in entries])
    )


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_zigzag_encoded(number: int) -> None:
    decoded = 0
    for position, byte in enumerate(zigzag(number)):
        decoded |= (byte & 0x7F) << 7 * position
    assert decoded >> 1 ^ -(decoded & 1) == number
    assert [byte >> 7 for byte in zigzag(number)] == [1] * (len(zigzag(number)) - 1) + [0]


def facts(rows: int) -> FileFacts:
    return FileFacts(rows, {1: 10}, {1: rows}, {1: 0}, {}, {1: b"\0" * 8}, {1: b"\1" * 8}, (4,), ())


def test_a_manifest_of_the_target_size_is_followed_by_another(tmp_path: Path) -> None:
    def path(number: int) -> str:
        # Incompressible values.
        return f"/t/{hashlib.sha256(str(number).encode()).hexdigest()}"

    plain = layout({"a": LongType()}, {"k": StringType()})
    with ManifestWriter(plain, f"{tmp_path}/m-", target_bytes=8_000) as writer:
        for number in range(1_200):
            writer.add((f"k{number // 30:03d}",), FileFormat.ORC, FileInfo(path(number), 100, 0), facts(number))
    assert len(writer.manifests) > 3
    assert all(8_000 <= each.length_bytes < 20_000 for each in writer.manifests[:-1])
    paths = [entry.data_file.file_path for each in writer.manifests for entry in read(each)]
    assert paths == [path(number) for number in range(1_200)]
    uppers = [each.partitions[0].upper_bound for each in writer.manifests]
    lowers = [each.partitions[0].lower_bound for each in writer.manifests]
    assert all(upper <= lower for upper, lower in zip(uppers, lowers[1:], strict=False) if upper and lower)


def test_a_manifest_of_the_greatest_number_of_entries_is_followed_by_another(tmp_path: Path) -> None:
    plain = layout({"a": LongType()})
    with ManifestWriter(plain, f"{tmp_path}/m-", most_entries=100) as writer:
        for number in range(250):
            writer.add((), FileFormat.PARQUET, FileInfo(f"/t/{number}", 100, 0), facts(number))
    assert [manifest.file_count for manifest in writer.manifests] == [100, 100, 50]
    counts = [entry.data_file.record_count for manifest in writer.manifests for entry in read(manifest)]
    assert counts == list(range(250))


@pytest.mark.parametrize("folder_count", [1, 3, 150])
def test_a_search_finds_exactly_the_manifests_that_name_a_file(folder_count: int, tmp_path: Path) -> None:
    def path(number: int) -> str:
        return f"/t/{number % folder_count}/part-{number}.parquet"

    plain = layout({"a": LongType()})
    with ManifestWriter(plain, f"{tmp_path}/m-", most_entries=200) as writer:
        for number in range(600):
            writer.add((), FileFormat.PARQUET, FileInfo(path(number), 100, 0), facts(number))
    contents = [Path(manifest.path).read_bytes() for manifest in writer.manifests]
    for searched in ([7], [7, 450], [201, 202, 203], list(range(200, 290))):
        found = [PathSearch(map(path, searched)).is_possible_in(content) for content in contents]
        assert found == [any(number // 200 == place for number in searched) for place in range(3)]
    absent = PathSearch([*(f"/t/{number}/part-x.parquet" for number in range(folder_count)), "/t/0/part-7.parquet.x"])
    # So many folders are not searched for.
    assert [absent.is_possible_in(content) for content in contents] == [folder_count > 100] * 3


def test_blocks_that_are_full_end_within_a_manifest(tmp_path: Path) -> None:
    plain = layout({"a": LongType()})
    with ManifestWriter(plain, f"{tmp_path}/m-") as writer:
        for number in range(3_000):
            writer.add((), FileFormat.PARQUET, FileInfo(f"/t/{number}", 100, 0), facts(number))
    (manifest,) = writer.manifests
    assert [entry.data_file.record_count for entry in read(manifest)] == list(range(3_000))


def test_manifests_are_compressed(tmp_path: Path) -> None:
    plain = layout({"a": LongType()}, {"k": StringType()})
    with ManifestWriter(plain, f"{tmp_path}/m-") as writer:
        for number in range(1_000):
            writer.add(("k",), FileFormat.ORC, FileInfo(f"/warehouse/t/k=k/part-{number}", 100, 0), facts(number))
    (manifest,) = writer.manifests
    assert b"avro.codec\x0edeflate" in Path(manifest.path).read_bytes()
    # Without it, an entry has 100 bytes.
    assert manifest.length_bytes < 30_000
    assert len(read(manifest)) == 1_000


def test_nothing_added_writes_nothing(tmp_path: Path) -> None:
    with ManifestWriter(layout({"a": LongType()}), f"{tmp_path}/metadata/m-") as writer:
        pass
    assert writer.manifests == []
    assert list(tmp_path.iterdir()) == []


def test_after_an_error_the_last_manifest_is_not_written(tmp_path: Path) -> None:
    def fail() -> None:
        with ManifestWriter(layout({"a": LongType()}), f"{tmp_path}/m-") as writer:
            writer.add((), FileFormat.ORC, FileInfo("/t/1", 1, 0), facts(1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_written_manifest_goes_through_json(tmp_path: Path) -> None:
    with ManifestWriter(layout({"a": LongType()}, {"k": StringType()}), f"{tmp_path}/m-") as writer:
        writer.add(("é",), FileFormat.ORC, FileInfo("/t/1", 1, 0), facts(1))
        writer.add((None,), FileFormat.ORC, FileInfo("/t/2", 1, 0), facts(1))
    (manifest,) = writer.manifests
    assert WrittenManifest.from_json(json.loads(json.dumps(manifest.as_json()))) == manifest


def test_floating_point_keys_keep_their_sign(tmp_path: Path) -> None:
    with ManifestWriter(layout({"a": LongType()}, {"k": DoubleType()}), f"{tmp_path}/m-") as writer:
        for key in (0.0, -0.0):
            writer.add((key,), FileFormat.ORC, FileInfo("/t/1", 1, 0), facts(1))
    assert [str(entry.data_file.partition[0]) for entry in read(writer.manifests[0])] == ["0.0", "-0.0"]


@settings(max_examples=25, deadline=None)
@given(entries=ENTRIES, ratio=st.floats(allow_nan=False))
def test_copied_entries_keep_their_partitions(
    entries: list[Any], ratio: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("manifests")
    # Doubles that no float has, too.
    entries = [((*partition[:-2], ratio, partition[-1]), *rest) for partition, *rest in entries]
    with ManifestWriter(LAYOUT, f"{folder}/metadata/1-") as writer:
        for entry in entries:
            writer.add(*entry)
    (manifest,) = writer.manifests
    known = ManifestFile.from_args(sequence_number=7, added_snapshot_id=42)
    content = Path(manifest.path).read_bytes()
    partition_type = LAYOUT.spec.partition_type(LAYOUT.schema)
    copied = list(read_entries(known, content, partition_type))
    assert [entry.partition for entry in copied] == [entry[0] for entry in entries]
    assert [entry.path for entry in copied] == [entry[2].path for entry in entries]
    with ManifestWriter(LAYOUT, f"{folder}/metadata/2-") as writer:
        for entry in copied[1:]:
            writer.keep(entry)
        writer.delete(copied[0], 43)
    (again,) = writer.manifests
    assert again.partitions == manifest.partitions
    assert [entry.data_file.file_path for entry in read(again)] == [entry[2].path for entry in entries[1:]]
    *_, deleted = read_entries(known, Path(again.path).read_bytes(), partition_type)
    assert (deleted.is_deleted, deleted.path) == (True, entries[0][2].path)


@settings(max_examples=25, deadline=None)
@given(
    partition=st.tuples(*(st.one_of(st.none(), values) for _, values in KEYS.values())),
    ratio=st.floats(allow_nan=False),
    counts=st.none() | COUNTS,
    bounds=st.none() | BOUNDS,
    codec=st.sampled_from(["zstandard", "deflate"]),
)
def test_entries_of_other_writers_are_copied_as_they_are(
    partition: tuple[Any, ...],
    ratio: float,
    counts: dict[int, int] | None,
    bounds: dict[int, bytes] | None,
    codec: AvroCompressionCodec,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """With maps without items, and doubles that no float has, which no bound repeats."""
    folder, io = tmp_path_factory.mktemp("manifests"), PyArrowFileIO()
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="/t/a.parquet",
        file_format="PARQUET",
        partition=Record(*partition[:-2], ratio, partition[-1]),
        record_count=3,
        file_size_in_bytes=100,
        column_sizes=counts,
        value_counts=counts,
        lower_bounds=bounds,
        upper_bounds=bounds,
        split_offsets=[4],
    )
    output = io.new_output(f"{folder}/engine.avro")
    with write_manifest(2, LAYOUT.spec, LAYOUT.schema, output, 1, codec) as engine:
        engine.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=file))
    known = engine.to_manifest_file()
    known.sequence_number = 7
    content = Path(f"{folder}/engine.avro").read_bytes()
    [entry] = read_entries(known, content, LAYOUT.spec.partition_type(LAYOUT.schema))
    assert entry.partition == values_of(file.partition)
    with ManifestWriter(LAYOUT, f"{folder}/copied-") as writer:
        writer.keep(entry)
    [copied] = manifest_entries(io, ManifestFile.from_args(manifest_path=writer.manifests[0].path, partition_spec_id=0))
    assert values_of(copied.data_file.partition) == entry.partition
    assert (copied.data_file.value_counts or {}, copied.data_file.lower_bounds or {}) == (counts or {}, bounds or {})
    assert (copied.data_file.record_count, copied.data_file.split_offsets) == (3, [4])
