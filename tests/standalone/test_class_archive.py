"""The archive of JVM classes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from standalone.class_archive import archive_path, jvm_options, spark_home
from standalone.java import require_java


def test_a_jvm_with_another_class_path_starts_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    java_home = require_java()
    (jar,) = (spark_home() / "jars").glob("py4j-*.jar")
    # It ends at the end of its input.
    program = ["-cp", str(jar), "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    make = [f"{java_home}/bin/java", f"-XX:ArchiveClassesAtExit={archive_path(java_home)}", *program]
    subprocess.run(make, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert archive_path(java_home).exists()
    other = [f"{java_home}/bin/java", *shlex.split(jvm_options(java_home)), "-cp", str(tmp_path), "-version"]
    assert subprocess.run(other, capture_output=True, text=True, check=True).stdout == ""
