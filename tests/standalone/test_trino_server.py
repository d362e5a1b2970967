"""The preparation of Trino; `make bench-trino` tests the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from standalone.errors import SetUpError
from standalone.postgres import free_port
from standalone.trino_server import VERSION, TrinoClient, installed, require_trino_java
from tests.standalone.test_java import make_jvm


def test_java_is_the_newest_of_the_system(tmp_path: Path) -> None:
    for version in ("25.0.1", "17.0.8", "9.0.1"):
        make_jvm(tmp_path / f"java-{version}", version)
    (tmp_path / "java-99").mkdir()
    assert require_trino_java({}, tmp_path) == tmp_path / "java-25.0.1"


def test_java_is_the_one_that_is_named(tmp_path: Path) -> None:
    make_jvm(tmp_path / "jvm" / "java-25", "25.0.1")
    named = make_jvm(tmp_path / "named", "24.0.2")
    assert require_trino_java({"TRINO_JAVA_HOME": str(named)}, tmp_path / "jvm") == named


@pytest.mark.parametrize("environ", [{}, {"TRINO_JAVA_HOME": "/nowhere"}])
def test_java_that_is_too_old_is_none(tmp_path: Path, environ: dict[str, str]) -> None:
    make_jvm(tmp_path / "java-23", "23.0.1")
    with pytest.raises(SetUpError, match=r"needs Java 24 or later, but TRINO_JAVA_HOME and"):
        require_trino_java(environ, tmp_path)


@pytest.mark.long
def test_trino_that_is_there_is_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    home = tmp_path / f"trino-server-{VERSION}"
    with pytest.raises(SetUpError, match="sudo apt-get install maven"):
        installed(tmp_path)
    assert not home.exists()
    home.mkdir()
    assert installed(tmp_path) == home


@pytest.mark.long
def test_server_that_does_not_listen_is_not_ready() -> None:
    assert not TrinoClient(free_port()).is_ready()
