from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import NestedFolderError
from catalog.files.filesystem import is_hidden
from catalog.iceberg import folders
from catalog.iceberg.folders import Recursion, data_files


def make(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * len(name))
    return root


def names(root: Path | str, recursion: Recursion, skip: tuple[str, ...] = ()) -> list[str]:
    return [each.path.removeprefix(f"{str(root).rstrip('/')}/") for each in data_files(str(root), recursion, skip)]


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    return make(tmp_path, "b", "a", "_success", ".a.crc", "sub/c", "sub/_temporary/d", "sub/deep/e", "_hidden/f")


def test_all_files_are_found_by_path_and_hidden_parts_are_not(nested: Path) -> None:
    assert names(nested, Recursion.TRUE) == ["a", "b", "sub/c", "sub/deep/e"]


def test_nested_folders_can_be_left_out(nested: Path) -> None:
    assert names(nested, Recursion.FALSE) == ["a", "b"]


def test_a_nested_folder_is_named(nested: Path) -> None:
    with pytest.raises(NestedFolderError) as caught:
        names(nested, Recursion.FAIL)
    assert caught.value.folder == f"{nested}/sub"
    assert "recursive_directory" in str(caught.value)


def test_hidden_folders_are_no_nested_ones(tmp_path: Path) -> None:
    make(tmp_path, "a", "_temporary/0/b", ".hive-staging/c")
    assert names(tmp_path, Recursion.FAIL) == ["a"]


def test_a_folder_of_a_key_that_begins_with_an_underscore_is_not_hidden(tmp_path: Path) -> None:
    assert names(make(tmp_path, "_k=1/a"), Recursion.TRUE) == ["_k=1/a"]


def test_what_is_above_the_location_and_a_slash_behind_it_change_nothing(tmp_path: Path) -> None:
    root = make(tmp_path / "_staging" / ".x", "a", "s/b")
    assert names(f"{root}/", Recursion.TRUE) == names(root, Recursion.TRUE) == ["a", "s/b"]
    assert names(f"file://{root}", Recursion.TRUE) == ["a", "s/b"]
    assert [each.path for each in data_files(f"{root}//", Recursion.FALSE)] == [f"{root}/a"]


def test_skipped_folders_are_neither_read_nor_nested(tmp_path: Path) -> None:
    root = make(tmp_path, "a", "metadata/1.avro", "metadata2/b")
    assert names(root, Recursion.TRUE, (f"{root}/metadata/",)) == ["a", "metadata2/b"]
    with pytest.raises(NestedFolderError, match="metadata2"):
        names(root, Recursion.FAIL, (f"{root}/metadata",))


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert names(tmp_path / "missing", Recursion.FAIL) == []


def test_files_have_their_size_and_time(tmp_path: Path) -> None:
    (found,) = data_files(str(make(tmp_path, "abc")), Recursion.FAIL)
    status = (tmp_path / "abc").stat()
    assert (found.size_bytes, found.modified_at_ms) == (3, status.st_mtime_ns // 1_000_000)


PART = st.sampled_from(["a", "b", "_c", ".d", "_k=1", "e f"])


@settings(max_examples=30, deadline=None)
@given(
    paths=st.sets(st.lists(PART, min_size=1, max_size=3).map(tuple), max_size=6),
    recursion=st.sampled_from(Recursion),
    skipped=st.sets(PART, max_size=1),
)
def test_local_and_other_file_systems_are_listed_alike(
    paths: set[tuple[str, ...]],
    recursion: Recursion,
    skipped: set[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("folders")
    for path in paths:
        make(root, "/".join((*path[:-1], f"{path[-1]}.file")))
    skip = frozenset(f"{root}/{name}" for name in skipped)

    def listed(walk: object) -> list[object] | str:
        try:
            return sorted(walk(str(root), recursion, skip), key=lambda each: each.path)  # type: ignore[operator]
        except NestedFolderError as error:
            return error.folder

    found = listed(folders._local)
    assert found == listed(folders._remote)
    if recursion is Recursion.TRUE and not skipped:
        shown = ((*path[:-1], f"{path[-1]}.file") for path in paths)
        visible = ["/".join((str(root), *parts)) for parts in shown if not any(map(is_hidden, parts))]
        assert [each.path for each in found] == sorted(visible)  # type: ignore[union-attr]
