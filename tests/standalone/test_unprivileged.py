"""Programs of root's that an unprivileged user runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from standalone.errors import SetUpError
from standalone.unprivileged import UNPRIVILEGED_USER, python_probe, run_unprivileged, unprivileged_prefix

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as another user")

RUN = """
import sys
from pathlib import Path
from standalone.unprivileged import run_unprivileged
code = "import os, pathlib; print(os.getuid(), *os.environ); pathlib.Path.home().joinpath('file').touch()"
run_unprivileged(Path(sys.argv[1]), ["-c", code])
"""


def test_another_user_runs_python_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of root")
    home = tmp_path / "home"
    ended = subprocess.run([sys.executable, "-c", RUN, str(home)], capture_output=True, text=True, check=True)
    user_id, _, variables = ended.stdout.partition(" ")
    assert int(user_id) != 0
    assert "AWS_SECRET_ACCESS_KEY" not in variables
    assert (home / "file").owner() == UNPRIVILEGED_USER
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_folder_with_files_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetUpError, match="belongs to user root"):
        run_unprivileged(tmp_path, [])
    assert (tmp_path / "file").owner() == "root"


@pytest.mark.long
def test_a_probe_fails_for_a_python_that_the_user_cannot_run_again(tmp_path: Path) -> None:
    assert unprivileged_prefix([python_probe(sys.executable, "")]) is not None
    assert unprivileged_prefix([python_probe(sys.executable, "raise SystemExit(1)")]) is None
