"""A partition index is built by a DAG and Spark while the table is in use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.errors import PartitionProblem

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long),
    pytest.mark.filterwarnings("ignore"),  # Airflow's own
]

BUILD = "build_partition_index"
TABLE, INDEX = "index.events", "by_month"
PARTITIONS_BEFORE = 20_000

# Adds partitions in small batches until a file appears, and prints the index's state after each batch.
ADDER = """
import itertools, sys
from pathlib import Path
from catalog import Catalog, NewPartition

table, stop = sys.argv[1], Path(sys.argv[2])
with Catalog.open() as catalog:
    for batch in itertools.count(1):
        # The last batch begins after the end was asked for.
        is_last = stop.exists()
        catalog.add_partitions(table, [NewPartition(["new", str(batch * 10 + each), "7"]) for each in range(10)])
        print(*[index.state for index in catalog.get_partition_indexes(table)] or ["NONE"], flush=True)
        if is_last:
            break
"""


@pytest.fixture(scope="module")
def make_table(catalog: Catalog) -> Callable[..., None]:
    """A function that creates a table with partitions without files, which an index does not need."""

    def make(name: str, partitions: Iterator[tuple[str, ...]]) -> None:
        catalog.create_database(name.partition(".")[0], if_not_exists=True)
        keys = [("source", "string"), ("number", "int"), ("month", "int")]
        catalog.create_table(name, columns=[("id", "int")], partition_keys=keys)
        catalog.add_partitions(name, (NewPartition(values) for values in partitions))

    return make


@contextmanager
def adding_partitions(table: str, environment: dict[str, str], folder: Path) -> Iterator[Path]:
    """Run a process that adds partitions before and during the block; its output is in the file."""
    stop, output = folder / "stop", folder / "output"
    with output.open("wb") as file:
        adder = subprocess.Popen(
            [sys.executable, "-c", ADDER, table, str(stop)], env={**os.environ, **environment}, stdout=file
        )
    try:
        while not output.stat().st_size and adder.poll() is None:
            time.sleep(0.05)
        yield output
    finally:
        stop.touch()
        assert adder.wait(300) == 0


@pytest.fixture(scope="module")
def built(
    make_table: Callable[..., None],
    environment: dict[str, str],
    run_dag: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Any, list[str]]:
    """The run that built the index, and the states of the index that another process saw after each of its batches."""
    make_table(TABLE, (("old", str(number), str(number % 12 + 1)) for number in range(PARTITIONS_BEFORE)))
    with adding_partitions(TABLE, environment, tmp_path_factory.mktemp("adder")) as output:
        run = run_dag(BUILD, {"table": TABLE, "index": INDEX, "keys": ["month", "source"]})
    return run, output.read_text().split()


def test_index_built_while_partitions_are_added_has_one_item_for_each(
    built: tuple[Any, list[str]], catalog: Catalog, items_of: Callable[..., Any]
) -> None:
    assert catalog.get_partition_index(TABLE, INDEX).state is IndexState.ACTIVE
    ids = [partition.id for partition in catalog.get_partitions(TABLE)]
    assert len(ids) > PARTITIONS_BEFORE
    assert items_of(TABLE, INDEX) == dict.fromkeys(ids, 1)


def test_partitions_were_added_all_the_while(built: tuple[Any, list[str]]) -> None:
    assert list(dict.fromkeys(built[1])) == ["NONE", "CREATING", "ACTIVE"]


def test_partitions_are_found_through_the_new_index(built: tuple[Any, list[str]], catalog: Catalog) -> None:
    explanation = catalog.explain_partitions(TABLE, "month = 7 and source = 'old'")
    assert explanation.index == INDEX
    assert explanation.partitions_found == explanation.partitions_fetched == PARTITIONS_BEFORE // 12 + 1


def test_run_says_what_it_made(built: tuple[Any, list[str]]) -> None:
    assert built[0].result("create") == "CREATING"
    assert built[0].result("build")["state"] == "ACTIVE"
    assert built[0].result("wait_until_active") == {INDEX: "ACTIVE"}


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"index": INDEX, "keys": ["month", "source"]}, "IndexAlreadyExistsError"),
        ({"index": "again", "keys": ["month", "source"]}, "IndexAlreadyExistsError"),
        ({"index": "by_id", "keys": ["id"]}, "InvalidIndexError"),
        ({"table": "index.nothing", "index": INDEX, "keys": ["month"]}, "TableNotFoundError"),
    ],
    ids=["name taken", "keys taken", "no partition key", "no table"],
)
def test_index_that_cannot_be_created_fails_the_run_at_once(
    built: tuple[Any, list[str]], run_dag: Callable[..., Any], form: dict[str, object], said: str
) -> None:
    run = run_dag(BUILD, {"table": TABLE, **form}, "failed")
    assert said in run.log("create")
    assert run.tries("create") == 1
    assert run.states()["build"] == "upstream_failed"


@pytest.mark.long
@pytest.mark.usefixtures("unfit_values")
def test_build_over_partitions_that_do_not_fit_fails_with_the_code(
    make_table: Callable[..., None], catalog: Catalog, run_dag: Callable[..., Any]
) -> None:
    table = "index.offending"
    make_table(table, iter([("old", "1", "1"), ("old", "2", "foo")]))
    run = run_dag(BUILD, {"table": table, "index": INDEX, "keys": ["month"]}, "failed")
    index = catalog.get_partition_index(table, INDEX)
    assert (index.state, index.failure_code) == (IndexState.FAILED, PartitionProblem.INVALID_TYPE)
    assert run.states() == {"create": "success", "build": "success", "wait_until_active": "failed"}
    assert run.tries("wait_until_active") == 1
    assert PartitionProblem.INVALID_TYPE in run.log("wait_until_active")
    assert "'foo'" in run.log("wait_until_active")
