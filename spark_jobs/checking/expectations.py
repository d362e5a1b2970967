"""Quality checks with Great Expectations: a table's rules as a suite over its partition summary, and the Data Docs."""

from __future__ import annotations

import html
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog import Table
from catalog.errors import StorageError, VerificationFailedError
from catalog.loading.quality_pages import ASSETS, QualityPages
from catalog.operations.records import Operation
from catalog.settings.quality_rules import FailedCheck, PartitionCheck, QualityRules
from spark_jobs.checking.data_docs import offline_page, page_assets
from spark_jobs.checking.page_sections import partition_section
from spark_jobs.checking.planned_checks import Check, planned_checks

if TYPE_CHECKING:
    import pandas
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.expectations.expectation import ColumnMapExpectation
    from great_expectations.render.components import RenderedSectionContent

log = logging.getLogger("spark_jobs.checking.expectations")


@dataclass(frozen=True)
class Validation:
    """The results of all partitions of a summary, and the path or URI of the page that shows them, if there is one."""

    checks: tuple[PartitionCheck, ...]
    page: str | None


def validate(
    summary: pandas.DataFrame,
    table: Table,
    rules: QualityRules,
    *,
    pages: QualityPages,
    operation: Operation,
    learned: Sequence[Check] = (),
) -> Validation:
    """Check a summary, and write a page of Data Docs, which needs no internet.

    The check writes its own page, and reads no other one. If the page cannot be written, the result has none: the
    results are in the catalog.

    Args:
        learned: More checks, of further columns of the summary.
    """
    # Escaped, because the pages do not escape names, and a partition value may contain HTML.
    summary = summary.assign(partition=[html.escape(name) for name in summary["partition"]])
    checks = [*planned_checks(summary, table, rules), *learned]
    result = _run(summary, table, checks, operation.id)
    verdicts = tuple(_partition_checks(result, summary, checks))
    failed = {check.partition_id: "; ".join(map(str, check.failures)) for check in verdicts if not check.passed}
    digest, assets = page_assets()
    text = offline_page(_rendered(result, table.full_name, partition_section(summary, failed)), f"../{ASSETS}/{digest}")
    page = None
    try:
        pages.add_assets(digest, assets)
        page = pages.write(table.full_name, operation.number, operation.id, text)
    except StorageError as error:
        log.warning("The page of this check could not be written; its results are in the catalog: %s", error)
    return Validation(verdicts, page)


def _run(
    summary: pandas.DataFrame, table: Table, checks: list[Check], run_name: str
) -> ExpectationSuiteValidationResult:
    """Return the results of all checks, with a context in memory: one on disk would read all earlier results."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations
    from great_expectations import ExpectationSuite, RunIdentifier, ValidationDefinition
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    # The default would leave a temporary folder for a site behind.
    stores = InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
    config = DataContextConfig(store_backend_defaults=stores, progress_bars=ProgressBarsConfig(globally=False))
    context = great_expectations.get_context(mode="ephemeral", project_config=config)
    source = context.data_sources.add_or_update_pandas("partition summaries")
    batch = source.add_dataframe_asset(table.full_name).add_batch_definition_whole_dataframe("partitions of a load")
    expectations = [_expectation(check) for check in checks]
    suite = context.suites.add_or_update(ExpectationSuite(table.full_name, expectations=expectations))
    definition = context.validation_definitions.add_or_update(
        ValidationDefinition(name=table.full_name, data=batch, suite=suite)
    )
    return definition.run(
        batch_parameters={"dataframe": summary},
        run_id=RunIdentifier(run_name=run_name),
        result_format={
            "result_format": "COMPLETE",
            "unexpected_index_column_names": ["partition"],
            "partial_unexpected_count": 20,
        },
    )


def _rendered(result: ExpectationSuiteValidationResult, table: str, partitions: RenderedSectionContent) -> str:
    """Return the page of a result, with a section about the partitions after the overview."""
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultJinjaPageView

    # The page shows it as the name of the data asset, which a data frame does not have.
    result.meta["batch_kwargs"] = {  # type: ignore[typeddict-unknown-key]
        "data_asset_name": f"new and extended partitions of {table}"
    }
    document = ValidationResultsPageRenderer(run_info_at_end=True).render(result)
    document.sections.insert(1, partitions)
    return str(DefaultJinjaPageView().render(document))  # type: ignore[no-untyped-call]


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
            name = unexpected["partition"]
            partition = html.unescape(name)
            observed = check.observed_in.get(partition) or _observed(unexpected[check.column], check)
            what = f"{check.name} in the new rows" if name in of_new_rows else check.name
            failures[name].append(FailedCheck(what, observed, check.allowed_in.get(partition, check.allowed)))
    by_id: dict[int, list[FailedCheck]] = {}
    for name, partition_id in ids.items():
        by_id.setdefault(int(partition_id), []).extend(failures[name])
    for partition_id, failed in by_id.items():
        yield PartitionCheck(partition_id, tuple(failed))


def _observed(value: Any, check: Check) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower() if check.is_claim else str(value)
