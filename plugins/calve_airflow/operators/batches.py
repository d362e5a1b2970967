"""Base class of mapped tasks that each execute an operator for a batch of items."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from calve_airflow.batches import FAILED_ITEMS, Batch, name_of, title_of
from calve_airflow.catalog_access import SparkJobFailedError, SparkJobLostError, catalog_errors
from calve_airflow.forms.templates import refuse_templates

if TYPE_CHECKING:
    from airflow.sdk import Context


class BatchOperator(BaseOperator):
    """Base class of tasks that execute an operator for each item of a batch, one after the other.

    A subclass names this class first, and then the operator: `class VerifyIndexesOperator(BatchOperator,
    VerifyIndexOperator)`. The failure of an item does not prevent the others. A retry executes the operator again for
    all items; jobs that succeeded are not repeated unless their results are outdated. A task with one item may be
    deferred, as its operator; one with several keeps its worker slot.

    Attributes:
        item_fields: The operator's arguments that each item has, all of them strings.
        is_failing_last: False for a task before others of the same batch: it succeeds for the items that succeeded,
            after its last try, and `fail_item` keeps the later tasks from the others.

    Args:
        batch: The items; one of those that `in_batches` returned. It is templated only for tasks of mapped groups.

    Returns:
        The results of the items that succeeded; also the XCom of a task that fails.

    Raises:
        AirflowSkipException: All items were skipped.
    """

    item_fields: ClassVar[tuple[str, ...]] = ("table",)
    is_failing_last: ClassVar[bool] = True

    _current: BatchOperator | None = None

    def __init__(self, *, batch: Batch, **kwargs: Any) -> None:
        arguments: dict[str, Any] = {**dict.fromkeys(self.item_fields, ""), **kwargs}
        super().__init__(**arguments)
        self.batch = batch

    @property
    def title(self) -> str:
        """The name of the mapped task in Airflow's UI, for its `map_index_template`."""
        return title_of(self.batch, self.item_fields)

    def execute(self, context: Context) -> Any:
        """Execute the operator for each item."""
        return self._run(context, lambda task: super().execute(context))

    def resume(self, context: Context, *arguments: Any, **values: Any) -> Any:
        """Continue with the only item of the batch after the task was deferred."""
        return self._run(context, lambda task: super().resume(context, *arguments, **values))  # type: ignore[misc]  # of deferrable operators only

    def _run(self, context: Context, run: Callable[[BatchOperator], Any]) -> Any:
        from catalog.errors import CatalogError

        results: list[Any] = []
        problems: list[tuple[Mapping[str, str], Exception]] = []
        skipped: AirflowSkipException | None = None
        for item in self._checked():
            # A copy, because operators keep values of one item, such as its Spark configuration.
            self._current = task = copy.copy(self)
            for name, value in item.items():
                setattr(task, name, value)
            if len(self.batch) > 1:
                task.deferrable = False
            try:
                results.append(run(task))
            except AirflowSkipException as reason:
                skipped = reason
                self.log.info("%s was skipped: %s", name_of(item, self.item_fields), reason)
            except (AirflowFailException, SparkJobFailedError, SparkJobLostError, CatalogError) as error:
                self.log.error("%s: %s", name_of(item, self.item_fields), error)
                problems.append((item, error))
        # Pushed also if the task fails, because the last task of a run reports the items that succeeded.
        context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=results)
        if problems:
            failed = [f"{name_of(item, self.item_fields)}: {error}" for item, error in problems]
            context["ti"].xcom_push(key=FAILED_ITEMS, value=failed)
            self._fail(context, problems, has_others=bool(results))
        elif skipped is not None and not results:
            raise skipped
        return results

    def fail_item(self, context: Context, item: Mapping[str, str], error: Exception) -> None:
        """Keep the later tasks of a batch from an item that failed; for a task that is not `is_failing_last`."""
        raise NotImplementedError

    def on_kill(self) -> None:
        """Do what the operator does for the item that is being executed."""
        if self._current is not None:
            super(BatchOperator, self._current).on_kill()

    def _checked(self) -> Batch:
        """Return the items after checking that they have the fields of this operator, because users may write XComs."""
        from catalog.errors import WrongFieldError
        from catalog.settings.fields import text

        with catalog_errors():
            refuse_templates(self.batch)
            for item in self.batch:
                if not isinstance(item, dict) or sorted(item) != sorted(self.item_fields):
                    raise WrongFieldError(
                        "XCom", f"an item is not {' and '.join(self.item_fields)}; clear the task before this one"
                    )
                for name, value in item.items():
                    text(name, value)
        return self.batch

    def _fail(
        self, context: Context, problems: Sequence[tuple[Mapping[str, str], Exception]], *, has_others: bool
    ) -> None:
        retryable = [error for _, error in problems if not isinstance(error, AirflowFailException)]
        is_last_try = not retryable or context["ti"].try_number > context["ti"].max_tries
        if self.is_failing_last or not is_last_try or not has_others:
            # A retryable error first: Airflow retries the task only after one.
            raise (retryable or [error for _, error in problems])[0]
        for item, error in problems:
            self.fail_item(context, item, error)
