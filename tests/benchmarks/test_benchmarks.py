"""End-to-end runs of the benchmarks on very small tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import (
    adding,
    building,
    changing,
    executors,
    finding,
    large_loads,
    object_stores,
    pages,
    parsing,
    quality_pages,
    row_changes,
    small_loads,
    snapshots,
    waiting,
)
from benchmarks.__main__ import run
from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.sample import partitions
from benchmarks.timing import Effort
from catalog import Catalog

SCALES = [100, 200]
EFFORT = Effort(budget_seconds=0.02, least_runs=1)
FIELDS = ["name", "ours", "peer", "limit", "unit", "ratio", "goal", "met", "runs"]
SKIPPING = ["skip_scan", "two_skipped_keys", "three_skipped_keys"]
QUERIES = ["prefix", "prefix_range", "in_list", *SKIPPING, "non_indexed_key", "everything"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench")
    # Benchmarks of tables with a partition scheme take minutes, even on small tables.
    run(path, SCALES, EFFORT, (finding, adding, building))
    return path


@pytest.fixture(scope="module")
def figures(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "latest.json").read_text())
    return found


def expected_names() -> Iterator[str]:
    for database in ("postgresql", "sqlite"):
        for count in SCALES:
            yield f"add_partitions.one_index.{count}.{database}"
            yield f"get_partitions_own_index.skip_scan.{count}.{database}"
            for query in QUERIES:
                yield f"get_partitions.{query}.{count}.{database}"
                yield f"get_partitions_no_index.{query}.{count}.{database}"
        for query in ("prefix", "prefix_range", "in_list"):
            yield f"get_partitions_flatness.{query}.{SCALES[-1]}.{database}"
    for count in SCALES:
        yield f"build_index_memory.driver.{count}.postgresql"
    yield f"build_index.job.{SCALES[-1]}.postgresql"
    yield f"build_index.job_with_session.{SCALES[-1]}.postgresql"


@pytest.mark.spark
@pytest.mark.long
class TestRun:
    def test_yields_every_figure_once(self, figures: list[dict[str, Any]]) -> None:
        assert sorted(figure["name"] for figure in figures) == sorted(expected_names())

    def test_figures_have_these_fields_and_are_consistent(self, figures: list[dict[str, Any]]) -> None:
        for figure in figures:
            assert list(figure) == FIELDS
            assert figure["ours"] > 0
            assert figure["runs"] >= 1
            is_rate = figure["unit"] == "partitions/s"
            ratio = figure["peer"] / figure["ours"] if is_rate else figure["ours"] / figure["peer"]
            assert figure["ratio"] == pytest.approx(ratio)
            if figure["goal"] is None:
                assert figure["met"] is None
            else:
                assert figure["met"] is (ratio <= figure["goal"] if not is_rate else figure["ours"] >= figure["goal"])

    def test_goals_are_those_that_were_asked_for(self, figures: list[dict[str, Any]]) -> None:
        goals = {figure["name"]: figure["goal"] for figure in figures}
        assert goals["get_partitions.prefix.200.sqlite"] == 2.5
        assert goals["get_partitions.prefix_range.200.postgresql"] == 2.5
        assert goals["get_partitions_flatness.prefix.200.sqlite"] == 1.3
        assert goals["get_partitions_own_index.skip_scan.200.postgresql"] == 10
        assert goals["build_index.job.200.postgresql"] == 1
        assert goals["add_partitions.one_index.200.postgresql"] == 50_000
        assert goals["get_partitions.everything.200.sqlite"] is None

    def test_chart_has_a_panel_for_each_heading(self, folder: Path) -> None:
        chart = ElementTree.parse(folder / "chart.svg")
        texts = {element.text for element in chart.iter("{http://www.w3.org/2000/svg}text")}
        headings = {**finding.HEADINGS, **adding.HEADINGS, **building.HEADINGS}
        assert {heading.partition(": ")[0] for heading in headings.values()} <= texts

    def test_leaves_only_its_results_behind(self, folder: Path) -> None:
        assert sorted(path.name for path in folder.iterdir()) == ["chart.svg", "latest.json"]


@pytest.mark.long
def test_all_changes_without_spark_are_measured_on_both_databases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "COUNTS", (4,))
    with Ground(tmp_path / "ground", SCALES, EFFORT) as ground:
        names = {figure.name for figure in changing.measure(ground)}
    cases = ("add_to_empty", "drop_with_data", "merge", "split_that_fits", "drop")
    databases = ("postgresql", "sqlite")
    assert names == {f"change_catalog.{case}.4.{database}" for case in cases for database in databases}


@pytest.mark.long
def test_dags_of_listed_tables_are_parsed_and_serialised(tmp_path: Path) -> None:
    with Ground(tmp_path / "ground", SCALES, EFFORT) as ground:
        figures = list(parsing.measure(ground, 20))
    assert {figure.name: figure.peer for figure in figures} == {
        "listed_tables.parse.20.airflow": 0.1,
        "listed_tables.serialise.20.airflow": 0.2,
    }


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_check_beside_many_pages_is_measured(tmp_path: Path) -> None:
    with Ground(tmp_path / "ground", SCALES, EFFORT) as ground:
        (figure,) = quality_pages.measure(ground, 40)
    assert (figure.name, figure.goal) == ("quality_pages.check.40.files", 1.2)
    assert 0 < figure.ours < 4 * figure.peer


@pytest.mark.long
def test_sensors_that_wait_together_need_fewer_queries(tmp_path: Path) -> None:
    with Ground(tmp_path / "ground", SCALES, EFFORT) as ground:
        figures = {figure.name: figure for figure in waiting.measure(ground, 20, poll_seconds=0.5)}
    cases = [(case, database) for database in ("postgresql", "sqlite") for case in ("queries", "memory", "notice")]
    assert list(figures) == [f"waiting_sensors.{case}.20.{database}" for case, database in cases]
    for database in ("postgresql", "sqlite"):
        queries = figures[f"waiting_sensors.queries.20.{database}"]
        assert 0 < queries.ours < queries.peer / 10


@pytest.mark.airflow
@pytest.mark.long
def test_all_pages_are_measured_on_both_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "*")
    monkeypatch.setattr(pages, "PREPARATION_SECONDS", 0)
    monkeypatch.setattr(pages, "LATER", 1)
    monkeypatch.setattr(pages, "ROUNDS", 1)
    with Ground(tmp_path / "ground", SCALES, EFFORT) as ground:
        figures = {figure.name: figure for figure in pages.measure(ground)}
    databases = ("postgresql", "sqlite")
    timed = {
        f"{what}.{name}.200.{database}"
        for what in ("pages_first", "pages")
        for name in pages.PAGES
        for database in databases
    }
    memory = {f"pages_memory.after.200.{database}" for database in databases}
    assert set(figures) == {*timed, *memory, "plugin.load.1.airflow"}
    assert all(figures[name].met for name in memory)


@pytest.mark.spark
@pytest.mark.long
def test_tables_on_s3_and_a_cluster_are_measured(tmp_path: Path) -> None:
    with Ground(tmp_path / "ground", SCALES, EFFORT) as ground:
        figures = [*object_stores.measure(ground), *executors.measure(ground)]
    assert {figure.name: figure.goal for figure in figures} == {
        "object_store.write.100.postgresql": None,
        "object_store.register.100.postgresql": None,
        "object_store.migrate.100.postgresql": None,
        "object_store.build_index.200.postgresql": 1.1,
        "executors.write.10.postgresql": None,
        "executors.build_index.200.postgresql": None,
    }
    for figure in figures[:3]:
        # Each file takes a request at least.
        assert figure.ours > object_stores.DELAY_SECONDS


@pytest.mark.spark
@pytest.mark.long
def test_statements_that_change_rows_have_the_same_result_as_icebergs(tmp_path: Path) -> None:
    with Ground(tmp_path / "ground", (100, 1_000, 10_000), EFFORT) as ground:
        names = {figure.name for figure in row_changes.measure(ground)}
    kinds = {f"{what}.{kind}.50.postgresql" for what in ("replace", "merge") for kind in ("hive", "iceberg")}
    assert names == {*kinds, "compact.hive.1.postgresql"}
    with Ground(tmp_path / "loads", (100, 1_000), EFFORT) as ground:
        (figure,) = large_loads.measure(ground)
    assert (figure.name, figure.goal) == ("large_load.csv.2.postgresql", 1.5)


@pytest.mark.airflow
@pytest.mark.spark
@pytest.mark.long
def test_small_loads_start_spark_once_or_not_at_all(tmp_path: Path) -> None:
    with Ground(tmp_path / "ground", SCALES, EFFORT) as ground:
        figures = {figure.name: figure for figure in small_loads.measure(ground, rounds=1)}
    once, shared = (figures[f"small_loads.{scope}.5.postgresql"] for scope in ("load", "shared"))
    assert shared.ours < once.ours < once.peer


@pytest.mark.long
def test_answers_that_differ_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = finding.Query("wrong", "month = 2", "by_country", "month = ?", (3,))
    monkeypatch.setattr(finding, "QUERIES", (wrong,))
    with (
        Ground(tmp_path / "ground", SCALES, EFFORT) as ground,
        pytest.raises(BenchmarkError, match=r"get_partitions\.wrong\.100\.postgresql"),
    ):
        list(finding.measure(ground))


@pytest.mark.parametrize("count", [1, 50, 372, 1_000, 10_000, 101_000])
def test_sample_has_so_many_different_partitions(count: int) -> None:
    found = [new.values for new in partitions(count)]
    assert len(found) == len(set(found)) == count
    # The selective queries find the same partitions at all scales that include them.
    first = sum(values[:3] == ("US", "category-00", "2015") for values in found)
    assert first == min(count, 372)


@pytest.mark.parametrize(
    ("ours", "peer", "unit", "goal", "ratio", "met"),
    [
        (5.0, 2.0, "ms", 2.5, 2.5, True),
        (5.1, 2.0, "ms", 2.5, 2.55, False),
        (5.0, 2.0, "ms", None, 2.5, None),
        (50.0, 200.0, "partitions/s", 50, 4.0, True),
        (49.0, 196.0, "partitions/s", 50, 4.0, False),
    ],
)
def test_goal_is_a_greatest_ratio_or_a_least_rate(
    ours: float, peer: float, unit: str, goal: float | None, ratio: float, met: bool | None
) -> None:
    figure = Figure(name="a.b.1.sqlite", ours=ours, peer=peer, unit=unit, runs=1, goal=goal)
    assert figure.ratio == pytest.approx(ratio)
    assert figure.met is met


def test_an_index_finds_the_files_that_iceberg_plans_to_read(
    catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    monkeypatch.setattr(snapshots, "COUNTRIES", 8)
    with Catalog.open(catalog_url, warehouse=str(tmp_path)) as catalog:
        catalog.create_database("bench")
        snapshots.make_table(catalog, str(tmp_path / "t"), 8 * 60)
        iceberg = SqlCatalog("calve", uri=catalog_url)
        peer = iceberg.load_table(snapshots.TABLE)
        for expression, matches in snapshots.FILTERS.values():
            assert snapshots.find(catalog, expression) == snapshots.plan(peer, expression) == matches
        iceberg.engine.dispose()
