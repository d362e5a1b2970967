"""PyIceberg's access to files, of which Calve overrides a method that is not public."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from catalog.errors import InvalidTableError
from catalog.files.object_stores import s3_file_system
from catalog.iceberg import storage
from catalog.iceberg.documents.files import read_document
from catalog.iceberg.storage import file_io, read_contents


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_pyiceberg_reaches_s3_as_all_other_requests_do(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.example.com")
    io = file_io(f"{scheme}://lake/table/metadata.json")
    assert isinstance(io, PyArrowFileIO)
    # Equal settings have the same file system. Guards PyArrowFileIO._initialize_s3_fs.
    assert io.fs_by_scheme(scheme, "lake") is s3_file_system("lake")


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("s3://lake/a?b#c", ("s3", "lake", "lake/a?b#c")),
        ("hdfs://node:8020/a?b", ("hdfs", "node:8020", "/a?b")),
        ("file:/a%20b#c", ("file", "", "/a%20b#c")),
        ("/a b?c", ("file", "", "/a b?c")),
    ],
)
def test_locations_are_taken_literally(location: str, place: tuple[str, str, str]) -> None:
    io = file_io(location)
    assert isinstance(io, PyArrowFileIO)
    assert io.parse_location(location) == place


@pytest.mark.parametrize("size", [1_000, 1_001, 50_000_000])
def test_metadata_unpack_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(storage, "MOST_BYTES", 1_000)
    packed, plain = tmp_path / "0.gz.metadata.json", tmp_path / "0.metadata.json"
    packed.write_bytes(gzip.compress(b" " * (size - 2) + b"{}"))
    plain.write_bytes(b" " * (min(size, 5_000) - 2) + b"{}")
    if size == 1_000:
        assert read_document(str(packed)) == read_document(str(plain)) == {}
        return
    monkeypatch.setattr(storage, "MOST_BYTES", max(1_000, packed.stat().st_size))
    tracemalloc.start()
    with pytest.raises(InvalidTableError, match="maximum of metadata"):
        read_document(str(packed))
    with pytest.raises(ValueError, match="maximum of metadata"):
        read_contents(str(packed))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    monkeypatch.setattr(storage, "MOST_BYTES", 1_000)
    with pytest.raises(InvalidTableError, match="maximum of metadata"):
        read_document(str(plain))


@pytest.mark.parametrize("item", ["[]", "{}", '{"a":[]}'])
@pytest.mark.parametrize("is_packed", [False, True])
def test_metadata_with_more_objects_and_lists_than_real_ones_are_refused(
    tmp_path: Path, item: str, is_packed: bool
) -> None:
    path, contents = tmp_path / "0.metadata.json", f'{{"x":[{",".join([item] * 250_000)}]}}'.encode()
    path.write_bytes(gzip.compress(contents) if is_packed else contents)
    with pytest.raises(
        InvalidTableError, match=r"it has [\d,]+ objects and lists in [\d,]+ bytes, for which [\d,]+ are"
    ):
        read_document(str(path))


def test_metadata_of_many_columns_and_snapshots_are_read(tmp_path: Path) -> None:
    fields = [{"id": number, "name": f"c{number}", "required": False, "type": "int"} for number in range(5_000)]
    log = [{"timestamp-ms": 1_700_000_000_000 + number, "snapshot-id": number} for number in range(30_000)]
    snapshots = [{**entry, "manifest-list": "/t/m.avro", "summary": {"operation": "append"}} for entry in log]
    document = {"schemas": [{"schema-id": number, "fields": fields} for number in range(5)], "snapshots": snapshots}
    path = tmp_path / "0.metadata.json"
    path.write_text(json.dumps({**document, "snapshot-log": log}, separators=(",", ":")))
    assert read_document(str(path)) == {**document, "snapshot-log": log}
