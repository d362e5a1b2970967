"""The catalog works without Airflow, PySpark and Great Expectations."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.smoke

REPOSITORY = Path(__file__).parents[3]
NEEDED = (
    *(
        "alembic",
        "click",
        "croniter",
        "lark",
        "numpy",
        "protobuf",
        "psycopg[binary]",
        "pyarrow",
        "pyiceberg[glue,hive,sql-sqlite]",
        "pyyaml",
        "rich",
        "sqlalchemy",
        "sqlglot",
    ),
    # The extra `serve`.
    *("fastapi", "uvicorn"),
    *("pytest", "pytest-timeout", "hypothesis"),
)
ABSENT = ("airflow", "pyspark", "great_expectations", "pandas", "duckdb")
# Only tests that take a second or two; the others need the same libraries.
SELECTED = (
    *("types/test_key_types.py", "indexes/test_keys.py", "model/test_partition_names.py"),
    *("expressions/test_parser.py", "errors/test_errors.py", "files/test_files.py", "tables/test_definitions.py"),
    *("indexes/test_building.py", "operations/test_journal.py", "loading/test_loading.py"),
    "settings/test_table_config.py",
)


def requirements(found: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """Yield the requirements of a distribution in this environment."""
    for line in found.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def distributions() -> list[Distribution]:
    """Return the installed distributions that the catalog and its tests need, directly or indirectly."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [Requirement(text) for text in NEEDED]
    while todo:
        requirement = todo.pop()
        key = requirement.name.lower(), frozenset(requirement.extras)
        if key not in seen:
            seen.add(key)
            found[requirement.name.lower()] = here = distribution(requirement.name)
            todo += requirements(here, key[1])
    return list(found.values())


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables with which Python finds, through links, only those distributions."""
    packages = tmp_path_factory.mktemp("packages")
    for here in distributions():
        for top in {file.parts[0] for file in here.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(here.locate_file(top))))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CALVE_", "COV"))}
    return {**inherited, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{packages}", "HYPOTHESIS_PROFILE": "quick"}


def run_python(environment: dict[str, str], *arguments: str) -> str:
    """Run Python without its site-packages; return its output."""
    command = [sys.executable, "-S", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_module_of_the_catalog_imports(environment: dict[str, str]) -> None:
    program = f"""
import importlib, importlib.util, pkgutil, catalog
assert not [name for name in {ABSENT!r} if importlib.util.find_spec(name)]
for module in pkgutil.walk_packages(catalog.__path__, "catalog."):
    if ".migrations" not in module.name:
        importlib.import_module(module.name)
        print(module.name)
"""
    assert "catalog.catalog" in run_python(environment, "-c", program).splitlines()


@pytest.mark.long
def test_the_unit_tests_of_the_catalog_pass(environment: dict[str, str]) -> None:
    tests = [f"tests/catalog/{name}" for name in SELECTED]
    printed = run_python(environment, "-m", "pytest", "-q", "-k", "not postgresql", *tests)
    assert " passed" in printed
    assert " skipped" not in printed
