"""The jars of Spark's packages in one folder, without those of other versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from standalone import spark_jars
from standalone.errors import SetUpError
from standalone.spark_jars import fetch_jars


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The packages that were downloaded; their jars have their names. There is no package `missing`."""
    downloads: list[tuple[str, ...]] = []

    def resolve(packages: tuple[str, ...], work_dir: Path) -> None:
        if "missing" in packages:
            raise SetUpError("no such package")
        downloads.append(packages)
        (work_dir / "ivy" / "jars").mkdir(parents=True)
        for package in packages:
            (work_dir / "ivy" / "jars" / f"{package}.jar").touch()

    monkeypatch.setattr(spark_jars, "_resolve", resolve)
    return downloads


def names(jars: list[Path]) -> list[str]:
    return [jar.name for jar in jars]


def test_the_same_packages_are_downloaded_once(resolved: list[tuple[str, ...]], tmp_path: Path) -> None:
    for _ in range(2):
        assert names(fetch_jars(tmp_path / "jars", ("a-1", "b-1"))) == ["a-1.jar", "b-1.jar"]
    assert resolved == [("a-1", "b-1")]


def test_other_versions_replace_those_of_an_earlier_start(resolved: list[tuple[str, ...]], tmp_path: Path) -> None:
    fetch_jars(tmp_path, ("a-1", "b-1"))
    assert names(fetch_jars(tmp_path, ("a-2", "b-1"))) == ["a-2.jar", "b-1.jar"]
    assert names(fetch_jars(tmp_path, ("a-2", "b-1"))) == ["a-2.jar", "b-1.jar"]
    assert len(resolved) == 2


def test_a_download_that_fails_leaves_the_jars(resolved: list[tuple[str, ...]], tmp_path: Path) -> None:
    fetch_jars(tmp_path, ("a-1",))
    with pytest.raises(SetUpError, match="no such package"):
        fetch_jars(tmp_path, ("missing",))
    assert names(fetch_jars(tmp_path, ("a-1",))) == ["a-1.jar"]
