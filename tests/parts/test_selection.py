"""Which cases of tests `make test` runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests import conftest


class Case:
    """A case of a test on a catalog, as pytest has collected it."""

    fixturenames = ("catalog_url",)

    def __init__(self, nodeid: str, marks: Iterable[str]) -> None:
        self.nodeid, self.marks = nodeid, set(marks)
        self.path = Path(nodeid.partition("::")[0])

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: Any) -> None:
        self.marks.add(mark.name)


def selected(test: str, *marks: str, values: Sequence[str] = ("a", "b")) -> list[str]:
    """Return the parameters of a test on both databases with which `make test` runs it."""
    cases: list[Any] = [
        Case(f"{test}[{database}-{value}]", marks) for value in values for database in ("sqlite", "postgresql")
    ]
    conftest.pytest_collection_modifyitems(cases)
    return [case.nodeid.partition("[")[2].rstrip("]") for case in cases if "long" not in case.marks]


def test_the_database_of_a_test_depends_on_its_name() -> None:
    chosen = [selected(f"tests/catalog/test_a.py::test_{number}") for number in range(50)]
    assert {tuple(cases) for cases in chosen} == {("sqlite-a",), ("postgresql-a",)}
    assert selected("tests/catalog/test_a.py::test_7", values="xyz") == [f"{chosen[7][0][:-1]}x"]


def test_the_first_case_of_a_smoke_test_runs_on_both_databases() -> None:
    assert selected("tests/catalog/test_a.py::test_a", "smoke") == ["sqlite-a", "postgresql-a"]


def test_other_folders_run_on_postgresql() -> None:
    assert selected("tests/plugins/test_a.py::test_a") == ["postgresql-a"]
