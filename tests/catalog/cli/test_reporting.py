"""All failures are errors of the catalog, and one line on the command line."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog, NewPartition
from catalog.cli.main import COMMANDS, main
from catalog.errors import (
    InvalidLocationError,
    InvalidRequestError,
    MissingFileError,
    StorageError,
    TableAlreadyExistsError,
)
from catalog.files.filesystem import Folder
from catalog.statements.session import Session
from tests.support.effort import effort

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
TABLE = "demo.t"


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["foo://bucket/x", "://x", "s3://"])
def test_a_location_without_a_file_system_is_refused(location: str) -> None:
    with pytest.raises(InvalidLocationError, match="no file system is known"):
        Folder(location).exists("x")


def test_s3a_is_s3() -> None:
    region = "?region=eu-west-1"
    assert Folder(f"s3a://bucket/folder{region}")._root == Folder(f"s3://bucket/folder{region}")._root


def test_failures_of_a_disk_are_errors_of_the_catalog(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no Parquet")
    folder, nowhere = Folder(str(tmp_path)), Folder("/proc/nowhere")
    for action in (
        lambda: nowhere.write_bytes("x", b""),
        lambda: nowhere.write_rows("x/y", pa.table({"a": [1]})),
        lambda: list(folder.rows("file")),
        lambda: folder.row_count("file", "parquet"),
    ):
        with pytest.raises(StorageError):
            action()
    with pytest.raises(MissingFileError) as missing:
        folder.open("nothing")
    assert isinstance(missing.value, FileNotFoundError)
    assert "\n" not in str(missing.value)
    assert str(pickle.loads(pickle.dumps(missing.value))) == str(missing.value)


@on_sqlite
def test_a_statement_on_a_table_without_a_file_system_is_refused(catalog: Catalog) -> None:
    with Session(catalog, database="demo") as session:
        session.execute("CREATE TABLE t (a int) PARTITIONED BY (k int) STORED AS PARQUET LOCATION 'foo://x'")
        with pytest.raises(InvalidLocationError, match="no file system is known"):
            session.execute("MSCK REPAIR TABLE t")


# --- unchecked values -------------------------------------------------------------------------------------------------


@on_sqlite
def test_an_empty_location_is_refused(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[("a", "int")], partition_keys=[("k", "string")])
    for location in ("", "  ", "/x/\ud800"):
        with pytest.raises(InvalidRequestError, match="location"):
            catalog.create_database("other", location=location)
        with pytest.raises(InvalidRequestError, match="location"):
            catalog.create_table("demo.u", columns=[("a", "int")], location=location)
        with pytest.raises(InvalidRequestError, match="location"):
            catalog.add_partitions(TABLE, [NewPartition(["x"], location)])
        with pytest.raises(InvalidRequestError, match="location"):
            catalog.alter_table(TABLE, location=location)


@pytest.mark.parametrize(
    "partition",
    [
        NewPartition(["x"], file_count=-1),
        NewPartition(["x"], row_count="many"),  # type: ignore[arg-type]
        NewPartition(["x"], size_bytes=1.5),  # type: ignore[arg-type]
        NewPartition(["x"], row_count=True),
        NewPartition(["x"], row_count=2**63),
        NewPartition([7]),  # type: ignore[list-item]
        NewPartition("x"),
        NewPartition(["\ud800"]),
        NewPartition(["x"], properties={"a": 1}),  # type: ignore[dict-item]
        NewPartition(["x"], properties={1: "a"}),  # type: ignore[dict-item]
    ],
    ids=repr,
)
def test_a_partition_with_wrong_values_is_refused(catalog: Catalog, partition: NewPartition) -> None:
    catalog.create_table(TABLE, columns=[("a", "int")], partition_keys=[("k", "string")])
    with pytest.raises(InvalidRequestError):
        catalog.add_partitions(TABLE, [NewPartition(["good"]), partition])
    assert list(catalog.get_partitions(TABLE)) == []


@on_sqlite
@pytest.mark.parametrize("column_type", ["foo bar", "int)", "", "decimal(5", "array<foo bar>", "struct<a int>"])
def test_a_column_of_no_type_is_refused(catalog: Catalog, column_type: str) -> None:
    with pytest.raises(InvalidRequestError):
        catalog.create_table(TABLE, columns=[("a", column_type)])
    catalog.create_table(TABLE, columns=[("a", "int")])
    with pytest.raises(InvalidRequestError):
        catalog.alter_table(TABLE, add_columns=[("b", column_type)])


@pytest.mark.parametrize("properties", [{"a": 1}, {1: "a"}, {"a": "\ud800"}])
def test_properties_that_are_no_texts_are_refused(catalog: Catalog, properties: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        catalog.create_database("other", properties=properties)
    with pytest.raises(InvalidRequestError):
        catalog.create_table(TABLE, columns=[("a", "int")], properties=properties)
    catalog.create_table(TABLE, columns=[("a", "int")])
    with pytest.raises(InvalidRequestError):
        catalog.alter_table(TABLE, properties=properties)  # type: ignore[arg-type]


@on_sqlite
def test_two_spellings_of_one_letter_name_one_table(catalog: Catalog) -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    catalog.create_table(f"demo.{composed}", columns=[("a", "int")])
    assert catalog.get_table(f"demo.{decomposed}").name == composed
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(f"demo.{decomposed}", columns=[("a", "int")])


# --- the command line -------------------------------------------------------------------------------------------------

ODD = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "demo.t",
            "demo.none",
            "a.b.c",
            "*",
            "'",
            '"',
            "--",
            "-",
            "\ud800",
            "é",
            "x" * 5000,
            "\n",
            "%s",
            "1e999",
        ]
    ),
    st.text(max_size=20).filter(lambda text: "\0" not in text),
)


@on_sqlite
@settings(
    max_examples=effort(40, 150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    # `serve` without wrong arguments would go on.
    st.sampled_from(sorted(set(COMMANDS) - {"advise", "init", "serve"})),
    st.lists(ODD, max_size=3),
    st.lists(
        st.sampled_from(["--json", "--dry-run", "--explain", "--repair", "--where", "--database", "--table"]),
        max_size=2,
    ),
)
def test_no_command_ends_with_a_traceback(
    catalog: Catalog, command: str, arguments: list[str], options: list[str]
) -> None:
    if not list(catalog.list_tables()):
        catalog.create_table(TABLE, columns=[("a", "int")], partition_keys=[("k", "string")])
    done = CliRunner().invoke(main, [command, *options, *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert "Traceback" not in done.output
    if done.exit_code == 1 and command != "sql":
        assert len(done.stderr.splitlines()) <= 2, done.stderr


@on_sqlite
@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), ValueError("a\nb"), pa.ArrowInvalid("x")])
def test_an_unexpected_error_is_one_line(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(Catalog, "list_tables", failing)
    done = CliRunner().invoke(main, ["tables"])
    assert isinstance(done.exception, SystemExit)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


@on_sqlite
def test_an_interrupt_ends_a_command_without_a_traceback(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Catalog, "list_tables", interrupted)
    done = CliRunner().invoke(main, ["tables"])
    assert (done.exit_code, done.stderr.strip()) == (1, "Aborted!")


@on_sqlite
@pytest.mark.parametrize("command", [["partitions", TABLE], ["sql", f"SHOW PARTITIONS {TABLE}"]])
def test_a_reader_that_has_seen_enough_ends_a_command_quietly(catalog: Catalog, command: list[str]) -> None:
    catalog.create_table(TABLE, columns=[("a", "int")], partition_keys=[("k", "string")])
    catalog.add_partitions(TABLE, [NewPartition([f"{number:0100}"]) for number in range(3_000)])
    with subprocess.Popen(
        [sys.executable, "-m", "catalog.cli", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0
