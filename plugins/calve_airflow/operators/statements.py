"""Operators that parse and run one SQL statement, with Spark only if needed, and its approval if it deletes data.

Each task reads the statement from the run's parameters, and the catalog's journal stores it. It is no XCom and no
templated field, and the log shows none of its string literals, because Airflow would show them to all its users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.catalog_access import catalog_errors, open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.operators.approval import Question, asked_by, code, find_approval, key_of
from calve_airflow.operators.rebalancing import deletion_question, size
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.operators.summary import markdown_table

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.migration.reverting import Written
    from catalog.migration.source_entries import ChangedEntry
    from catalog.model import Table
    from catalog.operations.confirmation import Confirmation, PurgedPartition
    from catalog.statements.engine import Engine
    from catalog.statements.model import DropTable, DropValuePartitions, ForgetRows, RevertTable, Statement

STATEMENT = "statement"
"""The run parameter that contains the statement."""

_NOT_APPROVED = (
    "PlanConflictError: what the statement would delete now is not approved; nothing was changed. Start the DAG again "
    "with the same statement and have it approved"
)
_SHOWN = 20
_POSITION = re.compile(r"at position (\d+)$")


class ReadStatementOperator(FormOperator):
    """Task that parses a statement and determines whether it deletes data; changes nothing.

    The statement is the run's parameter `statement`; it may end in a semicolon.

    Raises:
        AirflowFailException: The statement is invalid, names a table that does not exist, or there are several; the log
            shows the position.
    """

    def execute(self, context: Context) -> None:
        """Parse the statement."""
        with open_catalog() as catalog:
            self._read(catalog, _statement(context), asked_by(context))

    def _read(self, catalog: Catalog, text: str, asker: str) -> None:
        from catalog.errors import CatalogError
        from catalog.model.identifiers import DEFAULT_DATABASE
        from catalog.statements.parser import parse_statement
        from catalog.statements.query_tables import require_tables_of
        from catalog.statements.session import position_of

        statement = None
        try:
            statement = parse_statement(text)
            require_tables_of(catalog, statement, DEFAULT_DATABASE)
            _question(catalog, statement, asker)
        except CatalogError as error:
            position = position_of(error, statement.places if statement else {})
            for line in _pointer(text, position):
                self.log.error("%s", line)
            raise


class RunStatementOperator(SparkJobOperator):
    """Task that runs a statement, in this process if the catalog alone can execute it, and otherwise as a Spark job.

    A retry or a cleared run does not repeat a statement that has run. A deletion runs only if exactly this deletion is
    approved.

    Args:
        operation_id: The operation to journal (templated).

    Returns:
        `columns`, `rows`, and `limited`: whether the result has more rows.

    Raises:
        AirflowFailException: The statement cannot be run; the log shows the position.
    """

    template_fields: Sequence[str] = ("operation_id",)

    statement = ""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="run_statement", request={}, **kwargs)

    def prepare(self, context: Context, catalog: Catalog) -> Mapping[str, Any] | None:
        """Run the statement in this process; otherwise request the job."""
        self.statement = _statement(context)
        outcome = self._outcome_here(catalog, context)
        if outcome is not None:
            return {"outcomes": [outcome]}
        self.conf = {**_packages(self.statement), **(self.conf or {})}
        return None

    def finish(self, context: Context, catalog: Catalog, result: Mapping[str, Any]) -> dict[str, Any]:
        """End the operation, and log the result of the statement."""
        from catalog.operations.records import OperationState

        with catalog.storage.write() as connection:
            catalog.operations.advance(connection, self.operation_id, OperationState.CLEANED)
        (outcome,) = result["outcomes"]
        left_out = outcome.get("rows_left_out", 0)
        self._show(outcome, left_out)
        return {"columns": outcome["columns"], "rows": outcome["rows"], "limited": left_out > 0}

    def explain(self, context: Context, catalog: Catalog, error: Exception) -> None:
        """Log the place in the statement that the job's error names."""
        self.statement = _statement(context)
        match = _POSITION.search(str(error))
        self._show_place(int(match.group(1)) if match else None)

    def _outcome_here(self, catalog: Catalog, context: Context) -> dict[str, Any] | None:
        """Run the statement in this process; return None when it needs Spark."""
        from catalog.errors import CatalogError, EngineUnavailableError
        from catalog.operations.records import OperationKind
        from catalog.statements.scripts import run_script, step_of, subject
        from catalog.statements.session import Session

        class SparkNeededError(EngineUnavailableError):
            """The statement reached a step that needs Spark."""

        def start(_: Catalog) -> Engine:
            raise SparkNeededError("the statement needs Spark and continues as a job")

        user = context["dag_run"].triggering_user_name
        table = subject(self.statement)
        self.request = {"table": table, "statements": self.statement}
        request = {"statement": self.statement}
        catalog.operations.begin(
            self.operation_id, OperationKind.RUN_STATEMENT, table, request, is_fixed=True, requested_by=user
        )
        earlier_job = catalog.operations.get_job(self.operation_id, step_of(1))
        if earlier_job is not None and earlier_job.state == "SUCCEEDED":
            self.log.info("This run has already run its statement")
            return dict(earlier_job.result)
        if catalog.operations.get_job(self.operation_id, self.job) is not None:
            return None
        try:
            self._require_approval(catalog, context)
            confirmation = _approved(catalog, context)
            with Session(catalog, start=start, requested_by=user, confirmation=confirmation) as session:
                (outcome,) = run_script(catalog, session, self.operation_id, self.statement)
        except SparkNeededError:
            return None
        except CatalogError as error:
            self._show_place(error.position)
            raise
        return outcome

    def _require_approval(self, catalog: Catalog, context: Context) -> None:
        """Check that the statement deletes nothing, or exactly what is approved.

        Raises:
            AirflowFailException: It deletes something that is not approved.
        """
        from catalog.rebalancing.changes import DropPartitions
        from catalog.statements.model import DropSchemePartitions
        from catalog.statements.parser import parse_statement
        from catalog.statements.scripts import statement_operation_id

        user = context["dag_run"].triggering_user_name
        statement = parse_statement(self.statement)
        own_operation = statement_operation_id(self.operation_id, 1)
        if isinstance(statement, DropSchemePartitions) and statement.with_data:
            # The operation locks the table, so that the deletion that is checked here is the one that will run.
            change = DropPartitions(statement.partition_ids, with_data=True)
            if catalog.rebalancing.begin(own_operation, _table(statement), change, requested_by=user).is_committed:
                return
        try:
            question = _question(catalog, statement, "")
            if question is not None and any(find_approval(catalog, context, key) is None for key in question.keys):
                raise AirflowFailException(_NOT_APPROVED)
        except BaseException:
            if catalog.operations.find(own_operation) is not None:
                catalog.operations.fail(own_operation, "NOT_APPROVED", "the deletion was not performed")
            raise

    def _show(self, outcome: Mapping[str, Any], left_out: int) -> None:
        rows = [dict(zip(outcome["columns"], row, strict=True)) for row in outcome["rows"]]
        for line in markdown_table(rows) if rows else ["Done." if not outcome["columns"] else "No rows."]:
            self.log.info("%s", line)
        if left_out:
            self.log.info("and %s more rows, which are not recorded", f"{left_out:,}")

    def _show_place(self, position: int | None) -> None:
        for line in _pointer(self.statement, position):
            self.log.error("%s", line)


def statement_question(catalog: Catalog, context: Context) -> Question | None:
    """Return the question to approve before a run's statement runs; None if it deletes nothing."""
    from catalog.statements.parser import parse_statement

    return _question(catalog, parse_statement(_statement(context)), asked_by(context))


def fail_statement(context: Context) -> None:
    """Fail the operation of a failed run's statement, so that it unlocks its table; for `on_failure_callback`."""
    from catalog import Catalog
    from catalog.statements.scripts import statement_operation_id

    run = context["dag_run"]
    with Catalog.open() as catalog:
        operation = catalog.operations.find(statement_operation_id(f"{run.dag_id}/{run.run_id}", 1))
        if operation is not None:
            catalog.operations.fail(operation.id, "RUN_FAILED", f"run {run.run_id} of {run.dag_id} failed")


def _approved(catalog: Catalog, context: Context) -> Confirmation:
    """Return a confirmation that lets a statement delete only what is approved.

    It is asked while the statement runs, because the data may have changed since `_require_approval`. Its methods raise
    AirflowFailException.
    """
    from catalog.operations.confirmation import Confirmation
    from catalog.partitions.purging import digest_purged

    def require(key: str | None) -> None:
        if key is not None and find_approval(catalog, context, key) is None:
            raise AirflowFailException(_NOT_APPROVED)

    class Approved(Confirmation):
        def drop_table(self, table: Table) -> None:
            require(_drop_key(catalog, table))

        def purge_partitions(self, table: Table, partitions: Sequence[PurgedPartition]) -> None:
            require(digest_purged(catalog.storage, table, partitions))

        def revert(self, table: Table) -> None:
            lost = _lost_by_revert(catalog, table)
            require(None if lost is None else _revert_key(table, lost[1]))

    return Approved()


def _packages(text: str) -> dict[str, str]:
    """Return the Spark settings for the packages that a statement needs besides Spark's own jars."""
    from catalog import Catalog
    from catalog.settings.environment import package_settings
    from catalog.statements.model import MigrationStatement
    from catalog.statements.parser import parse_statement

    lowered = text.lower()
    is_needed = isinstance(parse_statement(text), MigrationStatement) or "avro" in lowered
    if not is_needed:
        # Searching the statement for table names may match too many, which is safe. A view may refer to such tables.
        with Catalog.open() as catalog:
            is_needed = any(
                table.name in lowered and (table.is_view or table.needs_packages) for table in catalog.list_tables()
            )
    return package_settings(avro=True) if is_needed else {}


def _statement(context: Context) -> str:
    """Return the statement of a run, without surrounding whitespace and comments.

    Raises:
        AirflowFailException: There is not exactly one statement, or the parameter is not a string.
    """
    from catalog.settings.fields import text
    from catalog.statements.splitting import split

    with catalog_errors():
        statement = text(STATEMENT, context["params"][STATEMENT])
    statements = [part.text for part in split(statement)]
    if len(statements) != 1:
        raise AirflowFailException(
            f"statement: there are {len(statements)} statements, but a run executes one; for several, use calve sql "
            "--file"
        )
    return statements[0]


def _pointer(text: str, position: int | None) -> list[str]:
    """Return the line of a statement at a position, with a marker below and with string literals masked."""
    from catalog.cli.statements import pointer
    from catalog.statements.splitting import replace_literals

    return pointer(replace_literals(text, lambda literal: re.sub(r"[^'\"\n]", "*", literal)), position)


def _table(statement: Any) -> str:
    from catalog.model.identifiers import DEFAULT_DATABASE

    return f"{statement.table.database or DEFAULT_DATABASE}.{statement.table.name}"


def _question(catalog: Catalog, statement: Statement, asker: str) -> Question | None:
    """Return the question to approve before a statement runs; None if it deletes nothing."""
    from catalog.rebalancing.changes import DropPartitions
    from catalog.statements.model import (
        DropSchemePartitions,
        DropTable,
        DropValuePartitions,
        ForgetRows,
        RevertTable,
    )

    if isinstance(statement, DropSchemePartitions) and statement.with_data:
        plan = catalog.rebalancing.plan(_table(statement), DropPartitions(statement.partition_ids, with_data=True))
        return deletion_question(plan, asker) if plan.is_destructive else None
    if isinstance(statement, RevertTable) and statement.lose_data:
        return _revert_question(catalog, statement, asker)
    if isinstance(statement, ForgetRows) and statement.at_once:
        return _forget_question(catalog, statement, asker)
    if isinstance(statement, DropValuePartitions) and statement.purge:
        return _purge_question(catalog, statement, asker)
    return _drop_question(catalog, statement, asker) if isinstance(statement, DropTable) and statement.purge else None


def _revert_question(catalog: Catalog, statement: RevertTable, asker: str) -> Question | None:
    table = catalog.get_table(_table(statement))
    lost = _lost_by_revert(catalog, table)
    if lost is None:
        return None
    written, changed = lost
    elsewhere = f"\n\nCommits through the metastore would also be lost: {changed}." if changed else ""
    body = (
        f"{asker} requests\n\n`CALL iceberg.system.revert(schema_name => '{table.database}', table_name => "
        f"'{table.name}', lose_data => true)`\n\n"
        f"**{table.full_name}** would become the Hive table again, without the data written since: {written}."
        f"{elsewhere}\n\nReject ends the run, and nothing is changed."
    )
    key = _revert_key(table, changed)
    return Question(f"Lose the data written to {table.full_name} as Iceberg?", body, [key], table.full_name)


def _lost_by_revert(catalog: Catalog, table: Table) -> tuple[Written, ChangedEntry | None] | None:
    """Return what was written to a table and to its metastore entry since its migration; None if nothing was."""
    from catalog.migration.reverting import written_since_migration

    if table.metadata_location is None or table.is_only_iceberg:
        return None
    written = written_since_migration(table.metadata_location)
    changed = catalog.migrations.changed_entry(table)
    return None if written.is_nothing and changed is None else (written, changed)


def _revert_key(table: Table, changed: ChangedEntry | None) -> str:
    """Return the approval key of what a revert loses; each commit has its own metadata location."""
    return key_of(table.id, table.metadata_location, changed and changed.entry)


def _forget_question(catalog: Catalog, statement: ForgetRows, asker: str) -> Question:
    table = catalog.get_table(_table(statement))
    counting = f"SELECT count(*) FROM {table.full_name} WHERE {statement.where}"
    body = (
        f"{asker} requests `CALL calve.system.forget(…, at_once => true)`: the rows of **{table.full_name}** with "
        f"{code(statement.where)} would be deleted, and at once all files of the table that had them or that the table "
        "no longer needs, without the grace period: queries that are running may fail, and earlier snapshots are "
        f"lost.\n\nThe table has {_contents(catalog, table)}. How many of the rows meet the condition is known only "
        f"when the table is read; {code(counting)} counts them."
        "\n\nReject ends the run, and nothing is changed."
    )
    key = key_of(table.id, "forget", statement.where)
    return Question(f"Delete rows of {table.full_name} for good, at once?", body, [key], table.full_name)


def _purge_question(catalog: Catalog, statement: DropValuePartitions, asker: str) -> Question | None:
    from catalog.operations.confirmation import PurgedPartition
    from catalog.partitions.purging import digest_purged
    from catalog.statements.execution.partitions import condition_of

    table = catalog.get_table(_table(statement))
    condition = condition_of(table, statement)
    found = list(catalog.get_partitions(table.full_name, condition))
    partitions = [PurgedPartition.of(partition) for partition in found]
    key = digest_purged(catalog.storage, table, partitions)
    if key is None:
        return None
    rows, size_bytes = (
        "unknown" if None in column else f"{sum(column):,}" for column in list(zip(*partitions, strict=True))[2:]
    )
    count = f"{len(partitions):,} partitions"
    lines = [
        f"- {code(partition.name(table))}: "
        f"{'unknown' if partition.row_count is None else f'{partition.row_count:,}'} rows, "
        f"{'unknown size' if partition.size_bytes is None else size(partition.size_bytes)}"
        for partition in found[:_SHOWN]
    ]
    if len(partitions) > _SHOWN:
        lines.append(f"- and {len(partitions) - _SHOWN:,} more partitions")
    body = (
        f"{asker} requests `ALTER TABLE {table.full_name} DROP PARTITION … PURGE`: **{count}** with "
        f"{code(condition)} would be deleted permanently, with all files in their folders (rows: {rows}, bytes: "
        f"{size_bytes}):\n\n{chr(10).join(lines)}\n\nReject ends the run, and nothing is changed."
    )
    return Question(f"Delete {count} of {table.full_name} and their files?", body, [key], table.full_name)


def _drop_question(catalog: Catalog, statement: DropTable, asker: str) -> Question | None:
    from catalog.errors import NotFoundError

    try:
        table = catalog.get_table(_table(statement))
    except NotFoundError:
        if statement.if_exists:
            return None
        raise
    key = _drop_key(catalog, table)
    if key is None:
        return None
    body = (
        f"{asker} requests\n\n`DROP TABLE {table.full_name} PURGE`\n\n"
        f"The table **{table.full_name}** and all files in its folder {code(table.location)} would be deleted "
        f"permanently: {_contents(catalog, table)}.\n\nReject ends the run, and nothing is changed."
    )
    return Question(f"Delete the table {table.full_name} and its files?", body, [key], table.full_name)


def _drop_key(catalog: Catalog, table: Table) -> str | None:
    """Return the approval key of the deletion of a table with its files; None if no file is deleted."""
    from catalog.model import TableKind
    from catalog.partitions.counting import digest_contents

    if table.is_only_iceberg:
        return key_of(table.full_name, table.metadata_location)
    if table.kind is not TableKind.MANAGED:
        return None
    return key_of(table.id, digest_contents(catalog.storage, table))


def _contents(catalog: Catalog, table: Table) -> str:
    """Return a description of how much data a table has."""
    from catalog.partitions.counting import count_visible
    from catalog.tables.own_files import find_own_files

    if table.is_only_iceberg:
        found = catalog.browsing.snapshots(table.full_name)
        if found is None or found.files is None:
            return "an unknown number of files"
        return f"{found.files:,} files with {found.rows or 0:,} rows ({size(found.size_bytes or 0)})"
    if table.scheme is not None:
        partitions = catalog.scheme_partitions(table.full_name)
        rows = sum(partition.row_count for partition in partitions)
        size_bytes = sum(partition.size_bytes for partition in partitions)
        return f"{len(partitions):,} partitions with {rows:,} rows ({size(size_bytes)})"
    counts = count_visible(catalog.storage, table)
    if table.partition_keys and counts.rows is not None and counts.size_bytes is not None:
        return f"{counts.partitions:,} partitions with {counts.rows:,} rows ({size(counts.size_bytes)})"
    files = find_own_files(table.location, catalog.storage.identity)
    partition_count = f"{counts.partitions:,} partitions, " if table.partition_keys else ""
    return f"{partition_count}{files.file_count:,} files ({size(files.size_bytes)})"
