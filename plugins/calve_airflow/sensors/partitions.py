"""Sensor for partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from calve_airflow.catalog_access import open_catalog
from calve_airflow.sensors.waiting import WaitingSensor
from calve_airflow.triggers.partitions import PartitionTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.errors import CatalogError
    from catalog.partitions.awaited import AwaitedPartitions, AwaitedState, PartitionName, QualityDemand

_SHOWN = 5


class PartitionSensor(WaitingSensor):
    """Sensor that waits in the triggerer until partitions exist, are visible, and passed their quality check.

    Give `partition`, `partitions` or `expression`. Thousands of these sensors cost the catalog a few statements for
    each `poke_interval`, because the triggerer asks for all of them together.

    Args:
        table: `database.name` of a Hive-style table, or of one stored as Iceberg (templated).
        partition: The partition: `day=2024-05-01/country=DE` as in its path, all keys → values, or the values in the
            order of the keys (templated).
        partitions: A list of partitions, all of which have to be ready (templated).
        expression: A filter such as `day = '{{ ds }}'`: at least `at_least` partitions have to match it, and all that
            match have to be ready (templated).
        at_least: The number of partitions that `expression` has to find, for instance 24 hours of a day (templated).
        quality: Whether the latest quality check of each partition must have passed; False to wait only until they
            are visible. None: it must have passed if the table's entry in `tables.yaml` has quality rules, and a check
            of other tables must not have failed. A partition that failed and that a person has released with a reason
            has passed.
        poke_interval: Seconds between two polls of the catalog.
        timeout: Seconds after which the task fails.

    Returns:
        The number of partitions.

    Raises:
        AirflowFailException: The table does not exist or was dropped, is a view or an Iceberg table, or has no
            partition keys; a partition lacks a value; or the expression is invalid.
        AirflowSensorTimeout: The partitions are not ready after `timeout`.
    """

    template_fields: Sequence[str] = ("table", "partition", "partitions", "expression", "at_least")

    def __init__(
        self,
        *,
        table: str,
        partition: PartitionName | None = None,
        partitions: Sequence[PartitionName] | None = None,
        expression: str | None = None,
        at_least: int | str = 1,
        quality: bool | None = None,
        poke_interval: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.table = table
        self.partition = partition
        self.partitions = partitions
        self.expression = expression
        self.at_least = at_least
        self.quality = quality

    def execute(self, context: Context) -> int:
        """Return if the partitions are ready; otherwise defer, which frees the worker slot."""
        with open_catalog() as catalog:
            question = self._question(catalog)
            state = catalog.waits.look([question])[question]
            if isinstance(state, Exception):
                raise state
            told = "" if state.is_ready else _told(catalog, question, state)
        if not state.is_ready:
            self.log.info("%s; waiting", told)
            self.wait_for(PartitionTrigger(question.as_json(), self.poke_interval))
        return state.ready

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue after the wait; the error of a wait that took too long says what is still missing."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except AirflowSensorTimeout as timeout:
            try:
                with open_catalog() as catalog:
                    question = self._question(catalog)
                    told = _told(catalog, question, catalog.waits.look([question])[question])
            except Exception as error:
                self.log.warning("What is missing cannot be read: %s", error)
                raise timeout from None
            raise AirflowSensorTimeout(f"after {self.timeout:g} s, {told}") from timeout

    def _question(self, catalog: Catalog) -> AwaitedPartitions:
        """Return the question, after checking the arguments.

        Raises:
            AirflowFailException: None of the three arguments is given, or several.
            CatalogError: See `PartitionWaits.question`.
        """
        from catalog.settings.fields import whole_number

        given = {"partition": self.partition, "partitions": self.partitions, "expression": self.expression}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise AirflowFailException(
                f"the sensor for {self.table} has {' and '.join(named) or 'none of partition, partitions, expression'};"
                " give exactly one of these"
            )
        if self.expression is not None:
            if not isinstance(self.expression, str):
                raise AirflowFailException(
                    f"the sensor for {self.table} has the expression {self.expression!r}, expected a string"
                )
            at_least = self.at_least
            if isinstance(at_least, str) and at_least.isdecimal():
                at_least = int(at_least)
            number = whole_number("at_least", at_least, 2**62)
            return catalog.waits.question(
                self.table, expression=self.expression, at_least=number, quality=self._demand()
            )
        partitions = [self.partition] if self.partition is not None else self.partitions
        if not isinstance(partitions, Sequence) or isinstance(partitions, str):
            raise AirflowFailException(
                f"the sensor for {self.table} has the partitions {partitions!r}, expected a list; use partition= for "
                "one partition, and render_template_as_native_obj=True in the DAG for a list in a template"
            )
        return catalog.waits.question(self.table, partitions, quality=self._demand())

    def _demand(self) -> QualityDemand:
        from catalog.partitions.awaited import QualityDemand
        from catalog.settings.own_rules import has_quality_rules

        if self.quality is None:
            return QualityDemand.REQUIRED if has_quality_rules(self.table) else QualityDemand.IF_CHECKED
        return QualityDemand.REQUIRED if self.quality else QualityDemand.IGNORED


def _told(catalog: Catalog, question: AwaitedPartitions, state: AwaitedState | CatalogError) -> str:
    """Return the state for people, with the first partitions that are not ready, if they are named."""
    from catalog.errors.base import first_of

    text = f"{question.table}: {state}"
    single = [replace(question, names=(name,), at_least=1) for name in question.names]
    states = catalog.waits.look(single)
    left = [part.names[0] for part in single if not getattr(states[part], "is_ready", False)]
    return f"{text} ({first_of(left, _SHOWN)})" if left else text
