"""The environment of the embedded stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errors import LocationNotAllowedError
from catalog.settings.places import require_location
from standalone.environment import StackSettings
from standalone.preparation import write_files
from standalone.state import shell_file


def _variables(home: Path, inherited: dict[str, str]) -> dict[str, str]:
    settings = StackSettings("a-stack", home, "sqlite://", str(home / "warehouse"), "sqlite://", 1, Path("/java"))
    return settings.variables(inherited, {})


@pytest.fixture
def as_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CALVE_ALLOWED_LOCATIONS", "CALVE_WAREHOUSE"):
        monkeypatch.setenv(name, _variables(tmp_path, {})[name])
    return tmp_path


def test_all_that_is_put_below_landing_may_be_loaded_and_nothing_beside_it(as_the_stack: Path) -> None:
    # The file of the demo's section on invalid partitions.
    require_location(str(as_the_stack / "landing" / "wrong" / "flights-2013-foo.csv"))
    require_location(str(as_the_stack / "warehouse" / "demo"))
    for beside in ("landings", "airflow"):
        with pytest.raises(LocationNotAllowedError, match="CALVE_ALLOWED_LOCATIONS"):
            require_location(str(as_the_stack / beside / "flights.csv"))


def test_the_caller_may_allow_other_locations(tmp_path: Path) -> None:
    assert _variables(tmp_path, {"CALVE_ALLOWED_LOCATIONS": "/data"})["CALVE_ALLOWED_LOCATIONS"] == "/data"


def test_the_shell_file_names_the_list_of_tables_of_the_stack(tmp_path: Path) -> None:
    settings = StackSettings("a-stack", tmp_path, "sqlite://", "/warehouse", "sqlite://", 1, Path("/java"))
    write_files(settings, {})
    assert "CALVE_TABLES" not in shell_file(tmp_path).read_text()
    write_files(settings, {"CALVE_TABLES": "/lists/my tables.yaml"})
    assert "export CALVE_TABLES='/lists/my tables.yaml'\n" in shell_file(tmp_path).read_text()
