"""Commands import only the modules that they need, because imports are most of the time of a short command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from catalog import Catalog

SLOW = {"alembic", "lark", "numpy", "psycopg", "pyarrow", "pyiceberg", "rich", "sqlalchemy.orm", "sqlglot", "yaml"}
REPORT = """
import sys
from catalog.cli.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported_by(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", REPORT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.fixture
def only_sqlite(catalog: Catalog) -> Catalog:
    if catalog.storage.is_postgresql:
        pytest.skip("psycopg is needed")
    catalog.create_table("demo.flights", columns=[("delay", "int")], partition_keys=[("day", "date")])
    return catalog


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (["tables"], set()),
        (["indexes", "demo.flights"], set()),
        (["operations"], set()),
        (["databases"], set()),
        (["partitions", "demo.flights"], {"lark"}),
        (["drop-partitions", "demo.flights", "--all", "--dry-run"], {"lark"}),
        (["quarantine", "demo.flights"], {"lark"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_needs(only_sqlite: Catalog, arguments: list[str], needs: set[str]) -> None:
    modules = imported_by(*arguments)
    assert SLOW & modules == needs
    assert len([name for name in modules if name.startswith("catalog.")]) <= (128 if needs else 113)


def test_the_help_of_a_command_opens_no_other() -> None:
    modules = imported_by("tables", "--help")
    assert {name for name in modules if name.startswith("catalog.cli.")} == {
        "catalog.cli.arguments",
        "catalog.cli.main",
        "catalog.cli.output",
        "catalog.cli.reporting",
        "catalog.cli.tables",
    }
