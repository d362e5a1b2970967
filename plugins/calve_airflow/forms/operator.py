"""Tasks that act on the fields of their run's form."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from calve_airflow.catalog_access import catalog_errors


class FormOperator(BaseOperator):
    """Refuses a run whose configuration has fields that the form of its DAG does not have.

    Airflow adds these to the form's own. A misspelled field would leave the one that is meant at its default.

    Raises:
        AirflowFailException: There is such a field; the message names it, and the form's own.
    """

    def pre_execute(self, context: Any) -> None:
        """Compare the run's fields with the form."""
        from catalog.settings.fields import require_known

        super().pre_execute(context)
        with catalog_errors():
            require_known(context["params"], list(context["dag"].params))
