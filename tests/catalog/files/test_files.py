"""Files and folders: listings, hidden files, and moves."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from pyarrow import fs

from catalog.errors import MissingFileError, SourceFileError
from catalog.files.filesystem import Folder
from catalog.files.sources import find_files


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """A folder of raw files, with hidden ones among them."""
    for name in (
        "b.csv",
        "a.csv",
        "c.txt",
        "2013/d.csv",
        "2013/01/e.csv",
        "_tmp/f.csv",
        ".git/g.csv",
        ".h.csv",
        "_i.csv",
    ):
        path = tmp_path / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "landing"


def found(source: str, landing: Path) -> list[str]:
    return [each.path.partition(f"{landing.name}/")[2] for each in find_files(source)]


@pytest.mark.parametrize("prefix", ["", "file://"])
@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("", ["2013/01/e.csv", "2013/d.csv", "a.csv", "b.csv", "c.txt"]),
        ("/", ["2013/01/e.csv", "2013/d.csv", "a.csv", "b.csv", "c.txt"]),
        ("/a.csv", ["a.csv"]),
        ("/*.csv", ["a.csv", "b.csv"]),
        ("/[ab].csv", ["a.csv", "b.csv"]),
        ("/?.txt", ["c.txt"]),
        ("/2013/*.csv", ["2013/d.csv"]),
        ("/*/*.csv", ["2013/d.csv"]),
        ("/2013/*/*.csv", ["2013/01/e.csv"]),
        ("/20*", ["2013/01/e.csv", "2013/d.csv"]),
    ],
)
def test_a_source_is_a_file_a_folder_or_a_glob(landing: Path, prefix: str, source: str, names: list[str]) -> None:
    assert found(f"{prefix}{landing}{source}", landing) == names


def test_a_found_file_has_its_size_its_time_and_a_path_in_the_form_of_the_source(landing: Path) -> None:
    for prefix in ("", "file://"):
        [info] = find_files(f"{prefix}{landing}/a.csv")
        stat = (landing / "a.csv").stat()
        assert (info.path, info.size_bytes, info.modified_at_ms) == (
            *(f"{prefix}{landing}/a.csv", 5, stat.st_mtime_ns // 1_000_000),
        )
        [info] = find_files(f"{prefix}{landing}/[a].csv")
        assert info.path == f"{prefix}{landing}/a.csv"


def test_a_relative_source_is_below_the_working_folder(landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(landing)
    assert [Path(each.path).name for each in find_files("*.csv")] == ["a.csv", "b.csv"]
    assert [Path(each.path).name for each in find_files("2013")] == ["e.csv", "d.csv"]


@pytest.mark.parametrize("source", ["/nothing", "/nothing/*.csv", "/*.parquet", "/_tmp/.x"])
def test_a_source_without_files_is_named(landing: Path, source: str) -> None:
    with pytest.raises(SourceFileError, match=r"source .*" + source.replace("*", r"\*")):
        find_files(f"{landing}{source}")


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_requests_to_google_are_not_repeated_for_minutes(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    from_uri = mock.Mock(return_value=(fs.LocalFileSystem(), "bucket/folder"))
    monkeypatch.setattr(fs, "FileSystem", mock.Mock(from_uri=from_uri))
    Folder(f"{scheme}://bucket/folder")
    from_uri.assert_called_once_with(f"{scheme}://bucket/folder?retry_limit_seconds=10")


def test_text_that_is_no_utf_8_is_replaced(landing: Path) -> None:
    (landing / "latin.csv").write_bytes("Zürich\r\n".encode("latin-1"))
    with Folder(str(landing)).open_text("latin.csv") as file:
        assert file.read() == "Z\ufffdrich\r\n"


def test_files_move_and_moving_again_changes_nothing(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    names = [f"{number}.parquet" for number in range(40)]
    (tmp_path / "staging").mkdir()
    for name in names:
        (tmp_path / "staging" / name).write_text(name)
    for _ in range(2):
        folder.move_files("staging", folder.inside("t/k=1"), names)
        assert folder.is_empty("staging")
        assert [(tmp_path / "t/k=1" / name).read_text() for name in names] == names


def test_a_file_that_another_process_moves_first_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(str(tmp_path))
    for name in ("staging/a", "t/b"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    move = Folder._move_file

    def be_overtaken(source_folder: Folder, source: str, target: Folder, name: str) -> None:
        (tmp_path / "staging/a").rename(tmp_path / "t/a")
        move(source_folder, source, target, name)

    monkeypatch.setattr(Folder, "_move_file", be_overtaken)
    folder.move_files("staging", folder.inside("t"), ["a"])
    assert (tmp_path / "t/a").exists()


def test_a_file_that_is_nowhere_does_not_move(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    with pytest.raises(MissingFileError, match="staging/a is gone"):
        folder.move_files("staging", folder.inside("t"), ["a"])


def test_only_empty_folders_are_deleted_as_such(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a", "a", "nothing"):
        Folder(str(tmp_path / name)).delete_if_empty()
    assert not (tmp_path / "a").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".hidden").touch()
    Folder(str(tmp_path / "b")).delete_if_empty()
    assert (tmp_path / "b" / ".hidden").exists()
    (tmp_path / "c").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "c")
    assert not Folder(str(tmp_path / "link")).delete_if_empty()
    assert (tmp_path / "link").exists()


def test_deleting_a_folder_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    folder = Folder(str(tmp_path))
    for _ in range(2):
        folder.delete("a")
        assert not folder.exists("a")
    assert folder.folders("a") == []
    assert folder.is_empty("a")
