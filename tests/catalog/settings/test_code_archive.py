"""The zip file of the code that executors run."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from catalog.errors import InvalidConfigurationError
from catalog.settings.code_archive import code_archive


def write_package(root: Path, content: str) -> None:
    package = root / "shipped_for_a_test"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "values.py").write_text(content)


def test_equal_code_is_packed_once_and_changed_code_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder, other = tmp_path / "source", tmp_path / "code", tmp_path / "other"
    source.mkdir()
    monkeypatch.syspath_prepend(str(source))
    write_package(source, "A = 1")
    archive = code_archive(folder, ["shipped_for_a_test"])
    first = archive.read_bytes(), archive.stat().st_mtime_ns
    os.utime(source / "shipped_for_a_test" / "values.py", (0, 0))
    assert code_archive(folder, ["shipped_for_a_test"]) == archive
    assert (archive.read_bytes(), archive.stat().st_mtime_ns) == first
    assert code_archive(other, ["shipped_for_a_test"]).read_bytes() == first[0]
    write_package(source, "A = 2")
    assert code_archive(folder, ["shipped_for_a_test"]) != archive
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("content", [b"", b"of another user"])
def test_a_file_with_other_content_is_not_sent(tmp_path: Path, content: bytes) -> None:
    archive = code_archive(tmp_path)
    expected = archive.read_bytes()
    archive.write_bytes(content)
    assert code_archive(tmp_path) == archive
    assert archive.read_bytes() == expected


def test_python_imports_the_jobs_from_the_archive(tmp_path: Path) -> None:
    archive = code_archive(tmp_path)
    assert not [name for name in zipfile.ZipFile(archive).namelist() if "__pycache__" in name]
    code = "import spark_jobs.writing.index_backfill as module; print(module.__file__)"
    path = os.pathsep.join([str(archive), *(entry for entry in sys.path if entry.endswith("site-packages"))])
    # Isolated from the links of the virtual environment to the clone.
    command = [sys.executable, "-S", "-c", code]
    ended = subprocess.run(command, env={"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.strip().startswith(str(archive))


def test_a_package_that_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match="package nothing_of_this_name"):
        code_archive(tmp_path, ["nothing_of_this_name"])


def test_each_user_has_a_folder_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`calve` of root in a stack of another user must not leave a folder that this user's jobs cannot write."""
    monkeypatch.setenv("CALVE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    of_root = code_archive().parent
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert code_archive().parent != of_root
    assert of_root.parent == tmp_path
