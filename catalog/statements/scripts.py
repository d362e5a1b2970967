"""Scripts as steps of an operation, so that a repeated run skips the statements that were finished."""

from __future__ import annotations

from typing import Any

from catalog.catalog import Catalog
from catalog.errors import CatalogError
from catalog.model.identifiers import DEFAULT_DATABASE
from catalog.operations.records import JobState
from catalog.statements.model import Statement, TableStatement, UseDatabase
from catalog.statements.parser import parse_statement
from catalog.statements.results import Outcome
from catalog.statements.session import Session
from catalog.statements.splitting import StatementText, split

MOST_ROWS = 1_000
"""The maximum number of recorded rows of each result."""


def subject(script: str, database: str = DEFAULT_DATABASE) -> str:
    """Return the first table that a script names, for the journal.

    For a script that names no table, or that cannot be parsed, return a name that no table can have.
    """
    for text in split(script):
        try:
            statement = parse_statement(text.text)
        except CatalogError:
            break
        if isinstance(statement, UseDatabase):
            database = statement.name
        elif isinstance(statement, TableStatement):
            return f"{statement.table.database or database}.{statement.table.name}"
    return f"{database}.(statements)"


def run_script(
    catalog: Catalog, session: Session, operation_id: str, script: str, *, keep_going: bool = False
) -> list[dict[str, Any]]:
    """Run a script's statements, each as a step of an existing operation; return their outcomes.

    Skips statements that an earlier run of the operation has finished, and repeats an interrupted one. Repeating does
    not add rows twice, but for instance CREATE TABLE may fail because its table exists.

    Args:
        keep_going: Continue after an error; otherwise raise it at once.

    Returns:
        `Outcome.as_dict` of each statement, with at most `MOST_ROWS` rows.

    Raises:
        CatalogError: The first error of a statement; with `keep_going`, after the last statement.
    """
    outcomes, first = [], None
    for number, text in enumerate(split(script), 1):
        try:
            outcomes.append(_run_once(catalog, session, operation_id, number, text))
        except CatalogError as error:
            if not keep_going:
                raise
            first = first or error
            outcomes.append(Outcome(text, error=error).as_dict())
    if first is not None:
        raise first
    return outcomes


def step_of(number: int) -> str:
    """Return the step of a script's statement, numbered from 1."""
    return f"statement-{number}"


def statement_operation_id(operation_id: str, number: int) -> str:
    """Return the id for an operation that a script's statement creates."""
    return f"{operation_id}/{step_of(number)}"


def _run_once(
    catalog: Catalog, session: Session, operation_id: str, number: int, text: StatementText
) -> dict[str, Any]:
    step = step_of(number)
    job = catalog.operations.get_job(operation_id, step)
    if job is not None and job.state is JobState.SUCCEEDED and not _is_of_session(text):
        return dict(job.result)
    with catalog.operations.attempt(operation_id, step) as attempt:
        answer = session.execute(text.text, operation_id=statement_operation_id(operation_id, number))
        outcome = Outcome(text, answer=answer).as_dict(most_rows=MOST_ROWS)
        catalog.operations.finish_job(operation_id, step, attempt, outcome)
    return outcome


def _is_of_session(text: StatementText) -> bool:
    """Return whether a statement only changes its session, so that each run must repeat it."""
    statement: Statement = parse_statement(text.text)
    return isinstance(statement, UseDatabase)
