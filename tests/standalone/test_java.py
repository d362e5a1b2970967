from __future__ import annotations

from pathlib import Path

import pytest

from standalone import java
from standalone.errors import SetUpError
from standalone.java import find_java, java_version, require_java


def make_jvm(home: Path, version: str, *, with_release: bool = True) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    if with_release:
        (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(("version", "feature"), [("17.0.8", 17), ("21", 21), ("1.8.0_392", 1), ("25.0.1", 25)])
@pytest.mark.parametrize("with_release", [True, False])
def test_version_is_read(tmp_path: Path, version: str, feature: int, with_release: bool) -> None:
    assert java_version(make_jvm(tmp_path, version, with_release=with_release)) == feature


def test_folder_without_java_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.8"\n')
    assert java_version(tmp_path) is None


def test_unsupported_versions_are_passed_over(tmp_path: Path) -> None:
    make_jvm(tmp_path / "jvm" / "a-25", "25.0.1")
    wanted = make_jvm(tmp_path / "jvm" / "b-21", "21.0.2")
    newest = make_jvm(tmp_path / "other", "25.0.1")
    environ = {"JAVA_HOME": str(newest), "PATH": str(newest / "bin")}
    assert find_java(environ, tmp_path / "jvm") == wanted


def test_java_home_goes_before_path_and_path_before_the_system(tmp_path: Path) -> None:
    system = make_jvm(tmp_path / "jvm" / "java-17", "17.0.8")
    on_path = make_jvm(tmp_path / "path", "21.0.1")
    named = make_jvm(tmp_path / "named", "17.0.1")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(on_path / "bin" / "java")
    assert find_java({"JAVA_HOME": str(named), "PATH": str(links)}, tmp_path / "jvm") == named
    assert find_java({"PATH": str(links)}, tmp_path / "jvm") == on_path
    assert find_java({}, tmp_path / "jvm") == system


def test_nothing_is_found_on_a_bare_machine(tmp_path: Path) -> None:
    assert find_java({"JAVA_HOME": str(tmp_path / "gone")}, tmp_path / "no-jvm") is None


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_java", lambda: None)
    with pytest.raises(SetUpError, match="sudo apt-get install openjdk-17-jre-headless"):
        require_java()
