"""Quality checks with Great Expectations: a table's rules as a suite over its partition summary, and the Data Docs."""

from __future__ import annotations

import fcntl
import html
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from catalog import Table
from catalog.errors import VerificationFailedError
from catalog.files.filesystem import Folder
from catalog.files.locations import is_local, local_path
from catalog.settings.quality_rules import FailedCheck, PartitionCheck, QualityRules
from spark_jobs.checking.data_docs import as_one_file, make_self_contained
from spark_jobs.checking.partition_summary import claims

if TYPE_CHECKING:
    import pandas
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.data_context.data_context.file_data_context import FileDataContext
    from great_expectations.expectations.expectation import ColumnMapExpectation

_SITE = "local_site"


@dataclass(frozen=True)
class Check:
    """An expectation about one column of the summary.

    Attributes:
        column: The checked column of the summary.
        minimum, maximum: Inclusive bounds of its values; None for no bound. Nulls pass.
        name: Description of the checked value.
        allowed: Description of the allowed values.
        is_claim: The column is boolean and must be true.
    """

    column: str
    name: str
    allowed: str
    minimum: Any = None
    maximum: Any = None
    is_claim: bool = False


@dataclass(frozen=True)
class Validation:
    """The results of all partitions of a summary, and the path or URI of the page that shows them."""

    checks: tuple[PartitionCheck, ...]
    page: str


def planned_checks(summary: pandas.DataFrame, table: Table, rules: QualityRules) -> list[Check]:
    """Return the checks of each partition."""
    rows = rules.row_count
    checks = [
        Check("row_count_difference", "rows in the files minus registered rows", "0", 0, 0),
        Check("row_count", "rows", f"at least {rows.minimum}", rows.minimum),
    ]
    if table.scheme is None:
        checks += [
            Check("path_agrees", "the path has the registered values", "true", is_claim=True),
            Check("values_fit", "the values have the keys' types", "true", is_claim=True),
        ]
    if rows.usual is not None:
        low, high = rows.usual
        name = f"ratio of the rows of the same {', '.join(rows.per)} to the usual number"
        checks.append(Check("usual_ratio", name, f"{low} to {high}", low, high))
    for column, rule in rules.columns.items():
        if rule.max_null_ratio is not None:
            checks.append(
                Check(
                    f"{column}_null_ratio",
                    f"ratio of nulls in {column}",
                    f"at most {rule.max_null_ratio}",
                    0,
                    rule.max_null_ratio,
                )
            )
        if rule.minimum is not None:
            checks.append(Check(f"{column}_below", f"rows with {column} below {rule.minimum}", "0", 0, 0))
        if rule.maximum is not None:
            checks.append(Check(f"{column}_above", f"rows with {column} above {rule.maximum}", "0", 0, 0))
    known_claims = [claim for claim in claims(table, table.key_names, rules) if claim.column in summary.columns]
    for claim in known_claims:
        where = f"column {claim.key} in the files" if claim.may_be_null else claim.expression
        checks.append(Check(claim.column, f"{where} gives the partition's {claim.key}", "true", is_claim=True))
    return checks


def validate(summary: pandas.DataFrame, table: Table, rules: QualityRules, *, pages: str, run_name: str) -> Validation:
    """Check a summary, and write a page of Data Docs, which needs no internet.

    Args:
        pages: A folder, whose pages are one site, or the URI of a place where each page is one file with all it loads.
        run_name: Name of the run on the page: the operation's id.
    """
    # Escaped, because the pages do not escape names, and a partition value may contain HTML.
    summary = summary.assign(partition=[html.escape(name) for name in summary["partition"]])
    checks = planned_checks(summary, table, rules)
    with _home(pages) as home, _project(home) as context:
        result, page = _run(context, summary, table, checks, run_name)
        make_self_contained(page.parents[_depth_below_site(page)])
        shown = str(page)
        if not is_local(pages):
            folder = Folder(pages).inside(table.full_name)
            name = re.sub(r"[^\w:+-]", "-", run_name) + ".html"
            folder.write_bytes(name, as_one_file(page).encode())
            shown = f"{folder.location}/{name}"
    return Validation(tuple(_partition_checks(result, summary, checks)), shown)


@contextmanager
def _home(pages: str) -> Iterator[Path]:
    """Yield the folder of the site, which is a temporary one if the page is stored elsewhere."""
    if is_local(pages):
        yield Path(local_path(pages))
        return
    with tempfile.TemporaryDirectory(prefix="calve-pages") as folder:
        yield Path(folder)


@contextmanager
def _project(home: Path) -> Iterator[FileDataContext]:
    """Open the project of all tables, for one job at a time, because Great Expectations does not lock its files."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations
    from great_expectations.data_context.types.base import ProgressBarsConfig

    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        context = great_expectations.get_context(mode="file", project_root_dir=home)
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        yield context


def _run(
    context: FileDataContext, summary: pandas.DataFrame, table: Table, checks: list[Check], run_name: str
) -> tuple[ExpectationSuiteValidationResult, Path]:
    from great_expectations import Checkpoint, ExpectationSuite, RunIdentifier, ValidationDefinition
    from great_expectations.checkpoint.actions import UpdateDataDocsAction

    # Names become folders: a dot creates another folder, and a slash is refused.
    name, run_name = re.sub(r"[^\w-]", "-", table.full_name), run_name.replace("/", " ")
    source = context.data_sources.add_or_update_pandas("partition summaries")
    batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("partitions of a load")
    suite = context.suites.add_or_update(ExpectationSuite(name, expectations=[_expectation(check) for check in checks]))
    definition = context.validation_definitions.add_or_update(ValidationDefinition(name=name, data=batch, suite=suite))
    checkpoint = context.checkpoints.add_or_update(
        Checkpoint(
            name=name,
            validation_definitions=[definition],
            result_format={
                "result_format": "COMPLETE",
                "unexpected_index_column_names": ["partition"],
                "partial_unexpected_count": 20,
            },
            actions=[UpdateDataDocsAction(name="docs", site_names=[_SITE])],
        )
    )
    outcome = checkpoint.run(batch_parameters={"dataframe": summary}, run_id=RunIdentifier(run_name=run_name))
    ((key, result),) = outcome.run_results.items()
    url = context.get_docs_sites_urls(resource_identifier=key)[0]["site_url"]
    return result, Path(unquote(urlparse(url).path))


def _expectation(check: Check) -> ColumnMapExpectation:
    from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
    from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet

    description = f"For each new or extended partition: {check.name}, {check.allowed}."
    if check.is_claim:
        return ExpectColumnValuesToBeInSet(column=check.column, value_set=[True], description=description)
    return ExpectColumnValuesToBeBetween(
        column=check.column, min_value=check.minimum, max_value=check.maximum, description=description
    )


def _partition_checks(
    result: ExpectationSuiteValidationResult, summary: pandas.DataFrame, checks: list[Check]
) -> Iterator[PartitionCheck]:
    """Yield the result of each partition, from the unexpected rows of each expectation.

    Raises:
        VerificationFailedError: An expectation could not be evaluated, so there is no result.
    """
    by_column = {check.column: check for check in checks}
    ids: Mapping[str, int] = dict(zip(summary["partition"], summary["partition_id"], strict=True))
    failures: dict[str, list[FailedCheck]] = {name: [] for name in ids}
    of_new_rows = set(summary["partition"][summary["row_count"].isna()])
    for expectation in result.results:
        assert expectation.expectation_config is not None
        check = by_column[expectation.expectation_config.kwargs["column"]]
        unexpected_rows = expectation.result.get("unexpected_index_list") or []
        if not expectation.success and not unexpected_rows:
            raise VerificationFailedError(f"the check {check.name!r} could not be made: {expectation.exception_info}")
        for unexpected in unexpected_rows:
            observed = _observed(unexpected[check.column], check)
            name = unexpected["partition"]
            what = f"{check.name} in the new rows" if name in of_new_rows else check.name
            failures[name].append(FailedCheck(what, observed, check.allowed))
    by_id: dict[int, list[FailedCheck]] = {}
    for name, partition_id in ids.items():
        by_id.setdefault(int(partition_id), []).extend(failures[name])
    for partition_id, failed in by_id.items():
        yield PartitionCheck(partition_id, tuple(failed))


def _observed(value: Any, check: Check) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower() if check.is_claim else str(value)


def _depth_below_site(page: Path) -> int:
    return next(depth for depth, folder in enumerate(page.parents) if folder.name == _SITE)
