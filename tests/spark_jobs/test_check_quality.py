"""The quality check finds defects in the right partitions, and passes all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from catalog import Catalog, NewPartition, PartitionState
from catalog.errors import InvalidConfigurationError
from catalog.model.partition_names import escape
from catalog.operations.job_requests import CheckQualityJob
from catalog.operations.records import OperationKind
from catalog.settings.learning_rules import Measure
from catalog.settings.quality_rules import QualityRules
from catalog.settings.relation_rules import UniqueRule
from spark_jobs.check_quality import check_quality
from tests.support.effort import sampled

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

TABLE = "shop.orders"
RULES: dict[str, Any] = {
    "row_count": {"min": 1, "usual": [0.75, 1.5], "per": ["day"]},
    "columns": {"amount": {"min": 0, "max": 100, "max_null_ratio": 0.1}},
    "agree": {"day": "day(at)"},
}


@pytest.fixture
def check(
    spark: Any, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """A function that writes the files of partitions, registers them as one load, and checks them."""
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    catalog.create_database("shop")
    catalog.create_table(
        TABLE,
        columns=[("amount", "double"), ("at", "timestamp")],
        partition_keys=[("country", "string"), ("day", "int")],
    )

    def run(
        partitions: list[dict[str, Any]], operation: str = "dag/run", rules: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        from spark_jobs.sessions.session import configure

        catalog.operations.begin(operation, OperationKind.ADD_PARTITIONS, TABLE)
        with catalog.operations.attempt(operation, "register") as attempt:
            register(catalog, operation, attempt, partitions)
        attempt = catalog.operations.start_job(operation, "check_quality")
        job = CheckQualityJob(
            operation_id=operation,
            step="check_quality",
            attempt=attempt,
            table=TABLE,
            rules=RULES if rules is None else rules,
        )
        check_quality(configure(spark), catalog, job)
        done = catalog.operations.get_job(operation, "check_quality")
        assert done is not None
        return dict(done.result)

    return run


def register(catalog: Catalog, operation: str, attempt: int, partitions: list[dict[str, Any]]) -> None:
    """Add partitions in quarantine, with files of their rows."""
    from catalog.partitions.adding import PartitionAdder

    added = []
    for given in partitions:
        country, day = given.get("country", "US"), str(given["day"])
        root = Path(catalog.get_table(TABLE).location)
        location = root / f"country={escape(country)}" / f"day={given.get('path_day', day)}"
        location.mkdir(parents=True)
        amounts = given.get("amounts", [1.0] * 20)
        if amounts:
            columns = {
                "amount": pyarrow.array(amounts, given.get("amount_type", pyarrow.float64())),
                "at": at(given.get("at_day", day), len(amounts)),
            }
            if "n" in given:
                columns["n"] = given["n"]
            if "embedded_day" in given:
                columns["day"] = pyarrow.array([given["embedded_day"]] * len(amounts))
            pyarrow.parquet.write_table(pyarrow.table(columns), location / "part-0.parquet")
        rows = given.get("registered", len(amounts))
        added.append(NewPartition((country, day), location=str(location), row_count=rows, file_count=1))
    number = catalog.operations.get(operation).number
    with catalog.storage.write() as connection:
        adder = PartitionAdder(connection, catalog._definitions, TABLE, is_quarantined=True, operation_number=number)
        from catalog import OnInvalid

        adder.add(added, if_not_exists=False, on_invalid=OnInvalid.REFUSE)
        catalog.operations.finish_job(operation, "register", attempt, {}, connection=connection)


def at(day: Any, count: int) -> pyarrow.Array:
    from datetime import UTC, datetime

    return pyarrow.array([datetime(2024, 1, int(day), 12, tzinfo=UTC)] * count, pyarrow.timestamp("us", "UTC"))


def visible(catalog: Catalog) -> set[tuple[str | None, ...]]:
    return {partition.values for partition in catalog.get_partitions(TABLE)}


GOOD = [{"day": day} for day in (1, 2, 3)]

DEFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "nulls": ({"amounts": [1.0] * 10 + [None] * 10}, "ratio of nulls in amount: 0.5, expected at most 0.1"),
    "too great a value": ({"amounts": [1.0] * 19 + [101.0]}, "rows with amount above 100: 1, expected 0"),
    "too small a value": ({"amounts": [1.0] * 19 + [-1.0]}, "rows with amount below 0: 1, expected 0"),
    "another day inside": ({"at_day": 5}, "day(at) gives the partition's day: false, expected true"),
    "another day in the path": ({"path_day": 5}, "the path has the registered values: false, expected true"),
    "another day in a column": (
        {"embedded_day": 5},
        "column day in the files gives the partition's day: false, expected true",
    ),
    "half of the usual rows": ({"amounts": [1.0] * 10}, "usual number: 0.5, expected 0.75 to 1.5"),
    "fewer rows than registered": ({"registered": 21}, "rows in the files minus registered rows: -1, expected 0"),
    "no rows": ({"amounts": []}, "rows: 0, expected at least 1"),
}


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_files_from_before_a_column_became_wider_are_checked(
    check: Callable[..., dict[str, Any]], catalog: Catalog
) -> None:
    catalog.alter_table(TABLE, add_columns=[("n", "int")])
    catalog.alter_table(TABLE, change_columns={"n": ("n", "bigint")})
    old, new = (pyarrow.array([number] * 20, kind) for number, kind in ((7, pyarrow.int32()), (5 << 40, None)))
    rules = {"columns": {"n": {"max": 7}}}
    report = check([{"day": 1, "n": old}, {"day": 2, "n": new}, {"day": 3, "n": old, "embedded_day": 5}], rules=rules)
    (too_great, other_day) = sorted(report["failures"])
    assert too_great.startswith("country=US/day=2: rows with n above 7: 20")
    assert other_day.startswith("country=US/day=3: column day in the files gives the partition's day: false")


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("defect", sampled(DEFECTS, list(DEFECTS)[::3]))
def test_defect_is_found_where_it_is(check: Callable[..., dict[str, Any]], catalog: Catalog, defect: str) -> None:
    planted, said = DEFECTS[defect]
    report = check([*GOOD, {"day": 4, **planted}])
    assert (report["checked"], report["passed"], report["failed"]) == (4, 3, 1), report
    (failure,) = report["failures"]
    assert failure.startswith("country=US/day=4: ")
    assert said in failure
    assert visible(catalog) == {("US", "1"), ("US", "2"), ("US", "3")}


def test_right_partitions_pass_and_become_visible(check: Callable[..., dict[str, Any]], catalog: Catalog) -> None:
    report = check([*GOOD, {"day": 4, "embedded_day": 4}, {"country": "<b>a b&c/%", "day": 5}])
    assert (report["checked"], report["failed"], report["failures"]) == (5, 0, [])
    assert len(visible(catalog)) == 5
    assert Path(report["docs_path"]).exists()
    for partition in catalog.get_partitions(TABLE):
        stored = catalog.quality.get(partition.id)
        assert stored is not None
        assert stored.passed


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_failures_are_kept_with_the_partition(check: Callable[..., dict[str, Any]], catalog: Catalog) -> None:
    check([*GOOD, {"day": 4, "amounts": [101.0] * 20}])
    (held,) = catalog.get_partitions(TABLE, state=PartitionState.QUARANTINED)
    stored = catalog.quality.get(held.id)
    assert stored is not None
    assert [failure.check for failure in stored.failures] == ["rows with amount above 100"]


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_no_rules_still_check_paths_types_and_counts(check: Callable[..., dict[str, Any]]) -> None:
    report = check([{"day": 1}, {"day": 2, "registered": 3}], rules={})
    assert report["failed"] == 1


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_bounds_compare_by_the_type_of_the_column(check: Callable[..., dict[str, Any]]) -> None:
    rules = {"columns": {"at": {"min": "2024-01-02", "max": "2024-01-03 11:59:59"}}}
    report = check([{"day": 1}, {"day": 2}, {"day": 3}], rules=rules)
    assert sorted(report["failures"]) == [
        "country=US/day=1: rows with at below 2024-01-02: 20, expected 0",
        "country=US/day=3: rows with at above 2024-01-03 11:59:59: 20, expected 0",
    ]


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("columns", "said"),
    [({"amount": {"min": "M"}}, "bound 'M' is not of the column's type double"), ({"price": {}}, "names price")],
)
def test_rules_that_do_not_fit_the_columns_are_refused(
    check: Callable[..., dict[str, Any]], columns: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=said):
        check(GOOD, rules={"columns": columns})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"on_failure": "ignore"}, "on_failure is 'ignore'"),
        ({"rows": {}}, "unknown fields rows"),
        ({"row_count": {"min": "many"}}, "min is 'many'"),
        ({"row_count": {"usual": [2, 1], "per": ["day"]}}, r"usual is \[2, 1\]"),
        ({"row_count": {"usual": [1, 2]}}, "needs `per`"),
        ({"row_count": {"per": ["hour"]}}, "names hour"),
        ({"columns": {"amount": {"max_null_ratio": 2}}}, "max_null_ratio is 2"),
        ({"columns": ["amount"]}, r"columns is \['amount'\]"),
        ({"agree": {"hour": "1"}}, "names hour"),
        ({"learn": "yes"}, "learn is 'yes', expected on, off, or a list of row_count, nulls, distinct, freshness"),
        ({"learn": ["rows"]}, "learn names rows, which is not measured; the measures are row_count"),
        ({"learn": []}, r"learn is \[\], expected a list of measures"),
        ({"learn": {"of": []}}, "learn has unknown fields of"),
        ({"learn": {"per": ["hour"]}}, "learn.per names hour, which is not a partition key"),
        ({"learn": {"last": 3}}, "learn.last is 3, expected a number of partitions from 7 to 500"),
        ({"learn": {"last": 3, "tolerance": 0}}, "learn.last is 3.*\n?.*learn.tolerance is 0, expected a number"),
        ({"learn": {"columns": "amount"}}, "learn.columns is 'amount', expected a list of columns"),
        ({"unique": "id"}, r"unique is 'id', expected a list of columns, such as \[id\]"),
        ({"unique": ["id", "ID"]}, "unique has id twice"),
        ({"unique": {"columns": ["id"], "within": "database"}}, "within is 'database', expected partition or table"),
        ({"unique": {"within": "table"}}, "unique.columns is None, expected a list of columns"),
        ({"unique": [{"columns": ["id"]}, {"column": ["id"]}]}, "unique, rule 2 has unknown fields column"),
        ({"references": {"customer": "customers.id"}}, "customer is 'customers.id', expected database.table.column"),
        ({"references": ["customer"]}, r"references is \['customer'\], expected a mapping"),
        ({"references": {"customer": 7}}, "customer is 7, expected database.table.column"),
    ],
)
def test_wrong_rules_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=said):
        QualityRules.from_config(config, keys=("country", "day"))


@pytest.mark.parametrize(
    ("learn", "measures"),
    [
        (True, set(Measure)),
        ("on", set(Measure)),
        (["nulls", "row_count"], {Measure.NULLS, Measure.ROW_COUNT}),
        ({"measures": ["freshness"], "per": ["Country"]}, {Measure.FRESHNESS}),
        (False, None),
        ("off", None),
    ],
)
def test_learning_is_switched_by_a_word(learn: Any, measures: set[Measure] | None) -> None:
    rule = QualityRules.from_config({"learn": learn}, keys=("country", "day")).learn
    assert (None if rule is None else rule.measures) == measures


def test_columns_may_be_unique_in_a_partition_or_in_the_table() -> None:
    config = {"unique": [{"columns": ["Id"]}, {"columns": ["a", "b"], "within": "table"}]}
    assert QualityRules.from_config(config, keys=()).unique == (
        UniqueRule(("id",)),
        UniqueRule(("a", "b"), is_table_wide=True),
    )
    assert QualityRules.from_config({"unique": ["id"]}, keys=()).unique == (UniqueRule(("id",)),)
