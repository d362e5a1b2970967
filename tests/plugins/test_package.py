from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from airflow._shared.module_loading import find_path_from_directory

PLUGINS = Path(__file__).parents[2] / "plugins"
PAGES = "calve_airflow.pages."
MODULES = sorted(
    module
    for path in (PLUGINS / "calve_airflow").rglob("[!_]*.py")
    # Only Airflow's API server imports the pages; other processes import their mount.
    if not (module := ".".join(path.relative_to(PLUGINS).with_suffix("").parts)).startswith(PAGES)
    or module == f"{PAGES}mounting"
)
HEAVY = ("catalog.catalog", "pyspark", "great_expectations", "pyarrow", "airflow.providers.apache.spark.hooks")


@pytest.mark.filterwarnings("ignore")  # Airflow's own
@pytest.mark.parametrize("syntax", ["glob", "regexp"])
def test_airflow_does_not_load_the_package_file_by_file(syntax: str) -> None:
    found = [Path(path) for path in find_path_from_directory(str(PLUGINS), ".airflowignore", syntax)]
    assert not [path for path in found if "calve_airflow" in path.parts]


def test_importing_for_a_dag_file_loads_nothing_heavy() -> None:
    code = f"import sys, airflow.sdk\nimport {', '.join(MODULES)}\nprint(*(set({HEAVY!r}) & set(sys.modules)))"
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert loaded == []
