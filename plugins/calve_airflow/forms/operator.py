"""Base class of the tasks that read the fields of their run's form."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from calve_airflow.catalog_access import catalog_errors


class FormOperator(BaseOperator):
    """Task that refuses a run whose configuration has fields that are not in the DAG's form.

    Airflow adds such fields to those of the form. A misspelled field would leave the intended one at its default.

    Raises:
        AirflowFailException: There is such a field; the message names it and the fields of the form.
    """

    def pre_execute(self, context: Any) -> None:
        """Compare the run's fields with the form."""
        from catalog.settings.fields import require_known

        super().pre_execute(context)
        with catalog_errors():
            require_known(context["params"], list(context["dag"].params))
