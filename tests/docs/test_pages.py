"""Pages that list parts of the code, compared with the code; and the site, which must work offline."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.snippets import REPOSITORY

if TYPE_CHECKING:
    from airflow.sdk import Param

SHIPPED = ("catalog", "spark_jobs", "plugins", "dags", "standalone", "docker-compose.yaml", "Dockerfile", "tables.yaml")
UNDOCUMENTED = {
    "CALVE_DIE_AT": "of tests: where a process dies",
    "CALVE_STOP_AT": "of tests: where a process stops",
    "CALVE_STACK_ID": "the embedded stack marks its processes by it",
}
"""Variables that users do not set, with their purposes."""

_VARIABLE = re.compile(r"\bCALVE_[A-Z_]+[A-Z]\b")
_FIRST_CELLS = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<rest>.*) \|$", re.MULTILINE)


def page(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, list[str]]:
    """Return the rows of a page's tables whose first cell is a name: name → the other cells."""
    return {match["name"]: match["rest"].split(" | ") for match in _FIRST_CELLS.finditer(text)}


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        path = REPOSITORY / folder
        yield from [path] if path.is_file() else path.rglob("*.py")


# --- settings -------------------------------------------------------------------------------------------------------


def variables_of_code() -> set[str]:
    return {name for path in sources(*SHIPPED) for name in _VARIABLE.findall(path.read_text(encoding="utf-8"))}


def test_each_variable_of_the_code_is_in_the_table_of_settings() -> None:
    documented = set(_VARIABLE.findall(page("docs/settings.md")))
    assert variables_of_code() - documented - set(UNDOCUMENTED) == set(), "missing in docs/settings.md"
    assert documented - variables_of_code() == set(), "in docs/settings.md, but not in the code"
    assert set(UNDOCUMENTED) <= variables_of_code()


def test_defaults_in_the_table_of_settings_are_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from calve_airflow.submitting.spark_submit import job_script
    from catalog.settings import environment
    from catalog.storage import engine
    from spark_jobs.sessions import local_session

    for name in [name for name in os.environ if name.startswith("CALVE_")]:
        monkeypatch.delenv(name)
    pool = engine._pool_settings()
    documented = {name: cells[0].strip("`") for name, cells in rows(page("docs/settings.md")).items()}
    assert documented["CALVE_HOME"] == environment.state_folder().name
    assert documented["CALVE_TABLES"] == environment.tables_path().name
    assert documented["CALVE_SPARK_JOBS"] == job_script("run_statement").parent.name
    assert documented["CALVE_SPARK_POOL"] == environment.spark_pool()
    assert documented["CALVE_SPARK_MASTER"] == local_session.DEFAULT_MASTER
    assert documented["CALVE_MAX_NEW_PARTITIONS"] == str(environment.new_partition_limit())
    assert documented["CALVE_CONNECTIONS"] == str(pool["pool_size"] + pool["max_overflow"])
    assert documented["CALVE_CONNECTION_TIMEOUT_SECONDS"] == str(pool["pool_timeout"])
    for kind in ("verification", "maintenance", "advisor", "compaction"):
        variable = {"verification": "VERIFY"}.get(kind, kind.upper())
        assert documented[f"CALVE_{variable}_SCHEDULE"] == getattr(environment, f"{kind}_schedule")()


# --- Airflow --------------------------------------------------------------------------------------------------------


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the operators and sensors, each with its module."""
    for path in sources("plugins/calve_airflow/operators", "plugins/calve_airflow/sensors"):
        module = ".".join(path.relative_to(REPOSITORY / "plugins").with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Operator", "Sensor")):
                yield module, node


def own_arguments(definition: ast.ClassDef) -> list[str]:
    (constructor,) = [
        node for node in definition.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ] or [None]
    if constructor is None:
        return []
    arguments = constructor.args
    return [
        name.arg if default is None else f"{name.arg}={ast.unparse(default)}"
        for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]


def test_each_operator_and_sensor_is_documented_with_its_arguments() -> None:
    text = page("docs/operators.md")
    table = {name: re.findall("`([^`]+)`", cells[-2]) for name, cells in rows(text).items() if name[0].isupper()}
    assert table == {definition.name: own_arguments(definition) for _, definition in classes()}
    references = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    assert references == {f"{module}.{definition.name}" for module, definition in classes()}


def test_each_dag_is_documented_with_the_fields_of_its_form() -> None:
    sections = dict(re.findall(r"^### (\w+)$(.*?)(?=^##)", page("docs/airflow.md"), re.DOTALL | re.MULTILINE))
    assert set(sections) == {path.stem.removesuffix("_dag") for path in sources("dags")}
    for dag, section in sections.items():
        (form,) = re.findall(r"params(?:=|\.update\()(\w+)\(", page(f"plugins/calve_airflow/dags/{dag}.py"))
        params = getattr(importlib.import_module(f"calve_airflow.dags.{dag}"), form)()
        fields = rows(section)
        assert list(fields) == list(params), dag
        for name, param in params.items():
            assert fields[name][0].strip("`") == _shown_default(param), f"{dag}: {name}"
        # The line of tasks is not wrapped.
        (tasks,) = re.findall(r"^Tasks: (.*)\.$", section, re.MULTILINE)
        ids = re.findall(r"task_id=\"?(\w+)", page(f"plugins/calve_airflow/dags/{dag}.py"))
        assert len(tasks.split(" → ")) == len(ids), dag


def _shown_default(param: Param) -> str:
    value = param.value if param.has_value else None
    match value:
        case None:
            return "none" if "null" in param.schema["type"] else "required"
        case bool():
            return str(value).lower()
        case list():
            return ", ".join(value)
    return str(value)


# --- the catalog and the packages -----------------------------------------------------------------------------------


def test_each_method_of_the_catalog_is_listed() -> None:
    from catalog import Catalog

    members = inspect.getmembers_static(Catalog, lambda member: not isinstance(member, cached_property))
    methods = {name for name, _ in members if not name.startswith("_")}
    table = page("docs/catalog-api.md").partition("| of | methods |")[2].partition("\n\n")[0]
    assert set(re.findall("`([^`]+)`", table)) == methods


def test_what_the_catalog_api_refers_to_is_there() -> None:
    for name in re.findall(r"^::: (\S+)$", page("docs/catalog-api.md"), re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_the_plan_of_the_house_is_that_of_the_contracts() -> None:
    contracts = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    floors = {contract["containers"][0]: contract["layers"] for contract in contracts if contract.get("containers")}
    text = page("CONTRIBUTING.md")
    for container, heading in (
        ("catalog", "catalog/"),
        ("spark_jobs", "spark_jobs/"),
        ("calve_airflow", "plugins/calve_airflow/"),
    ):
        table = text.partition(f"| `{heading}` | ")[2].partition("\n\n")[0].splitlines()[2:]
        shown = [set(re.findall("`([^`]+)`", line.split(" | ")[0])) for line in table]
        expected = [set(re.split(r"[|:\s]+", layer.strip())) for layer in floors[container]]
        if container == "spark_jobs":
            shown, expected = shown[1:], expected[1:]
        assert shown == expected, container


# --- the site -------------------------------------------------------------------------------------------------------

_LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(https?:)?//|<link\b[^>]*\bhref=\"?(https?:)?//")
_LOADED_BY_STYLE = re.compile(r"(?:@import\s*|url\()[\"']?(https?:)?//")


@pytest.mark.long
def test_the_site_has_no_broken_link_and_loads_nothing_from_the_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert _pages_with(_LOADED, tmp_path.rglob("*.html")) == []
    assert _pages_with(_LOADED_BY_STYLE, tmp_path.rglob("*.css")) == []


def _pages_with(pattern: re.Pattern[str], files: Iterable[Path]) -> list[str]:
    found = [file for file in files if pattern.search(file.read_text(encoding="utf-8"))]
    return [str(file) for file in found]


def test_links_from_one_file_of_the_repository_lead_to_another() -> None:
    broken = []
    for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)\s#]+)", path.read_text(encoding="utf-8")):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert broken == []
