"""The last task of a run that does the same for many tables: says what became of each, and fails if any failed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.catalog_access import open_catalog

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog


_WIDEST = 60


@dataclass(frozen=True)
class Outcome:
    """What became of one thing that a run was to do.

    Attributes:
        row: What to say of it; the names are those of the table's columns.
        failure: Why it failed, and what to do; None when it did not.
    """

    row: Mapping[str, Any]
    failure: str | None = None


class SummaryOperator(BaseOperator):
    """Shows the outcomes as a Markdown table in the task's log, and returns its rows; fails if one failed.

    For the end of a run, with the trigger rule `all_done`: its state is then the run's.

    Args:
        planned: What the first task planned (templated); None when it failed.
    """

    template_fields: Sequence[str] = ("operation_id", "planned")

    def __init__(self, *, operation_id: str, planned: Any, **kwargs: Any) -> None:
        super().__init__(trigger_rule="all_done", **kwargs)
        self.operation_id = operation_id
        self.planned = planned

    @abstractmethod
    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcome of each thing that was planned."""

    def execute(self, context: Context) -> None:
        """Show what became of everything."""
        if self.planned is None:
            raise AirflowFailException("nothing was planned, so nothing was done; the log of `plan` says why")
        with open_catalog() as catalog:
            outcomes = self.outcomes(context, catalog)
        for line in markdown_table([outcome.row for outcome in outcomes]):
            self.log.info("%s", line)
        # A failed task returns nothing, and its rows are wanted most.
        rows = [dict(outcome.row) for outcome in outcomes]
        context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=rows)
        if failures := [outcome.failure for outcome in outcomes if outcome.failure is not None]:
            raise AirflowFailException(f"{len(failures)} of {len(outcomes)} failed: " + "; ".join(failures))


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table; the names of its columns are those of the first row."""
    if not rows:
        return ["There was nothing to do."]
    names = list(rows[0])
    cells = [["" if cell is None else str(cell).replace("|", "\\|") for cell in row.values()] for row in rows]
    # Aligned for whoever reads the log; what is long has room at the end of the line.
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(names, *cells, strict=True)]
    lines = [names, ["-" * width for width in widths], *cells]
    return [f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines]
