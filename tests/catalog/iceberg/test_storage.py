"""PyIceberg's access to files, of which Calve overrides a method that is not public."""

from __future__ import annotations

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from catalog.files.object_stores import s3_file_system
from catalog.iceberg.storage import file_io


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
