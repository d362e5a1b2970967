"""Source files that are set aside: not found again until they, or what decides about them, change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, Table
from catalog.errors import FencedError, TableNotFoundError
from catalog.model import SetAsideFile
from tests.support.commands import calve

TABLE = "demo.t"
REQUEST: dict[str, Any] = {"source_format": "csv", "columns": [["v", "int"]], "bad_files": "skip"}


@pytest.fixture
def table(catalog: Catalog) -> Table:
    catalog.create_database("demo", if_not_exists=True)
    return catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("day", "int")])


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """A folder with 2,500 files, more than one statement looks up."""
    folder = tmp_path / "landing"
    folder.mkdir()
    for number in range(2_500):
        (folder / f"{number:04}.csv").write_text("x")
    return folder


def names(files: Any) -> list[str]:
    return [Path(file.path).stem for file in files]


def begin(catalog: Catalog, landing: Path, operation_id: str, **request: Any) -> list[str]:
    settings = {"request": {**REQUEST, **request}}
    return names(catalog.loading.discover(operation_id, TABLE, str(landing), settings=settings))


def set_aside(catalog: Catalog, table: Table, operation_id: str, *stems: str) -> None:
    """Set files of a load aside, as its job does, and give the load up."""
    operation = catalog.operations.get(operation_id)
    files = [
        SetAsideFile(file.path, file.size_bytes, file.modified_at_ms, "it is bad", 3)
        for file in catalog.loading.discovered_files(operation)
        if Path(file.path).stem in stems
    ]
    attempt = catalog.operations.start_job(operation_id, "validate_source")
    catalog.loading.set_aside(table, (operation_id, "validate_source", attempt), files, REQUEST)


def give_up(catalog: Catalog, operation_id: str) -> None:
    catalog.operations.fail(operation_id, "TEST", "given up")


@pytest.mark.smoke
def test_files_are_set_aside_until_they_change(catalog: Catalog, table: Table, landing: Path) -> None:
    assert len(begin(catalog, landing, "1")) == 2_500
    set_aside(catalog, table, "1", "0007", "2003")
    first = catalog.operations.get("1")
    assert len(catalog.loading.source_files(first)) == 2_498
    assert not {"0007", "2003"} & set(names(catalog.loading.source_files(first)))
    [seventh, other] = catalog.set_aside_files(TABLE)
    assert (Path(seventh.path).name, seventh.reason, seventh.bad_row_count) == ("0007.csv", "it is bad", 3)
    assert (Path(other.path).name, other.operation_id) == ("2003.csv", "1")
    give_up(catalog, "1")

    assert len(begin(catalog, landing, "2")) == 2_498
    give_up(catalog, "2")
    (landing / "0007.csv").write_text("another")
    third = begin(catalog, landing, "3")
    assert ("0007" in third, "2003" in third) == (True, False)
    set_aside(catalog, table, "3")
    assert names(catalog.set_aside_files(TABLE)) == ["2003"]


def test_files_are_tried_again_with_other_settings_and_columns(catalog: Catalog, table: Table, landing: Path) -> None:
    begin(catalog, landing, "1")
    set_aside(catalog, table, "1", "0007")
    give_up(catalog, "1")
    changes = ({}, {"null_keys": "allow"}, {"columns": [["v", "string"]]}, {"mode": "append"})
    for number, change in enumerate(changes):
        is_tried = "0007" in begin(catalog, landing, f"again {number}", **change)
        assert is_tried == bool(change), change
        give_up(catalog, f"again {number}")
    catalog.alter_table(TABLE, add_columns=[("w", "int")])
    assert "0007" in begin(catalog, landing, "altered")


def test_reload_takes_files_that_are_set_aside(catalog: Catalog, table: Table, landing: Path) -> None:
    begin(catalog, landing, "1")
    set_aside(catalog, table, "1", "0007")
    give_up(catalog, "1")
    files = catalog.loading.discover("2", TABLE, str(landing), reload=True, settings={"request": REQUEST})
    assert "0007" in names(files)


def test_a_second_attempt_replaces_what_the_first_has_set_aside(catalog: Catalog, table: Table, landing: Path) -> None:
    begin(catalog, landing, "1")
    set_aside(catalog, table, "1", "0001", "0002")
    set_aside(catalog, table, "1", "0002", "0003")
    assert names(catalog.set_aside_files(TABLE)) == ["0002", "0003"]
    with pytest.raises(FencedError):
        catalog.loading.set_aside(table, ("1", "validate_source", 1), [], REQUEST)
    assert names(catalog.set_aside_files(TABLE)) == ["0002", "0003"]


def test_the_command_lists_them(catalog: Catalog, table: Table, landing: Path) -> None:
    assert calve("bad-files").stderr == "No files of any table are set aside.\n"
    assert calve("bad-files", TABLE).stderr == f"No files of {TABLE} are set aside.\n"
    begin(catalog, landing, "1")
    set_aside(catalog, table, "1", "0007", "2003")
    lines = calve("bad-files").stdout.splitlines()
    assert lines[0].split() == ["TABLE", "FILE", "SINCE", "REASON"]
    assert [(line.split()[0], Path(line.split()[1]).name) for line in lines[1:]] == [
        (TABLE, "0007.csv"),
        (TABLE, "2003.csv"),
    ]
    assert " UTC  it is bad" in lines[1]
    [file] = map(json.loads, calve("bad-files", TABLE, "--json", "--limit", "1").stdout.splitlines())
    assert (file["table"], Path(file["file"]).name, file["bad_rows"], file["operation"]) == (TABLE, "0007.csv", 3, "1")
    assert calve("bad-files", "--count").stdout == "2\n"
    give_up(catalog, "1")
    catalog.drop_table(TABLE)
    assert calve("bad-files", "--count").stdout == "0\n"


def test_a_dropped_table_has_none(catalog: Catalog, table: Table, landing: Path) -> None:
    begin(catalog, landing, "1")
    set_aside(catalog, table, "1", "0001")
    give_up(catalog, "1")
    catalog.drop_table(TABLE)
    with pytest.raises(TableNotFoundError):
        catalog.set_aside_files(TABLE)
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("day", "int")])
    assert catalog.set_aside_files(TABLE) == []
    assert "0001" in begin(catalog, landing, "2")
