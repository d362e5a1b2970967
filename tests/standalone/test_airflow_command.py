"""Airflow's command of a stack, as a file in its state folder."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from standalone import airflow_command as command
from standalone.environment import REPOSITORY, StackSettings
from standalone.preparation import write_files
from standalone.processes import MARK_VARIABLE, ProcessIdentity
from standalone.state import StackState, airflow_command


def test_without_a_stack_the_command_says_how_to_start_it(tmp_path: Path) -> None:
    home = tmp_path / "my home"
    home.mkdir()
    write_files(StackSettings("id", home, "sqlite://", "/warehouse", "sqlite://", 1, Path("/java")), {})
    path = airflow_command(home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    ended = subprocess.run(
        [str(path), "version"], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"No stack is running in {home}, so there is no Airflow to call. Start it: make up\n"


def test_the_command_has_the_environment_of_the_stack_without_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"AIRFLOW_HOME": "/of/the/stack", MARK_VARIABLE: "mark", "PYTHONPATH": str(REPOSITORY)}
    StackState("mark", ProcessIdentity.current(), environment=environment).write(tmp_path)
    called: list[tuple[list[str], dict[str, str]]] = []

    def execve(program: Path, arguments: list[str], variables: dict[str, str]) -> None:
        called.append((arguments, variables))
        raise SystemExit

    monkeypatch.setattr("os.execve", execve)
    monkeypatch.setenv("AIRFLOW_HOME", "/another")
    monkeypatch.setenv("KEPT", "1")
    with pytest.raises(SystemExit):
        command.main(tmp_path, ["dags", "list"])
    [(arguments, variables)] = called
    assert arguments == [str(Path(sys.executable).parent / "airflow"), "dags", "list"]
    assert (variables["AIRFLOW_HOME"], variables["KEPT"], MARK_VARIABLE in variables) == ("/of/the/stack", "1", False)
