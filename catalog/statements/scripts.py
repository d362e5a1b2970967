"""Scripts as the steps of an operation: what was done is done once, however often the script is run."""

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
"""Rows of each answer that are recorded."""


def subject(script: str, database: str = DEFAULT_DATABASE) -> str:
    """Return the table that a script is about, for the journal: the first that a statement names.

    Of a script that names none, or that cannot be read, a name that no table has.
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
    """Run a script's statements, each as a step of an operation that was begun; return their outcomes.

    Statements that an earlier run of the operation has finished are not run again. One that was interrupted is: rows
    are added once even so, while for instance CREATE TABLE finds its table then.

    Args:
        keep_going: Go on after an error; otherwise it is raised at once.

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
    """Return the step that a script's statement is, counted from 1."""
    return f"statement-{number}"


def operation_of(operation_id: str, number: int) -> str:
    """Return the id of the operation that a script's statement makes, if it makes one."""
    return f"{operation_id}/{step_of(number)}"


def _run_once(
    catalog: Catalog, session: Session, operation_id: str, number: int, text: StatementText
) -> dict[str, Any]:
    step = step_of(number)
    job = catalog.operations.get_job(operation_id, step)
    if job is not None and job.state is JobState.SUCCEEDED and not _is_of_session(text):
        return dict(job.result)
    with catalog.operations.attempt(operation_id, step) as attempt:
        answer = session.execute(text.text, operation_id=operation_of(operation_id, number))
        outcome = Outcome(text, answer=answer).as_dict(most_rows=MOST_ROWS)
        catalog.operations.finish_job(operation_id, step, attempt, outcome)
    return outcome


def _is_of_session(text: StatementText) -> bool:
    """Say whether a statement changes nothing but its session, which is another one each time."""
    statement: Statement = parse_statement(text.text)
    return isinstance(statement, UseDatabase)
