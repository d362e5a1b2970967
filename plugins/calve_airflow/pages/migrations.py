"""The pages of migrations from Hive to Iceberg: a board of all tables, and a page of each."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BeforeValidator

from calve_airflow.pages.access import User, may_start, require_start
from calve_airflow.pages.fields import PageNumber
from calve_airflow.pages.open_catalog import OpenCatalog, Remembered
from calve_airflow.pages.overview import table_sizes
from calve_airflow.pages.rendering import is_part, or_none, render
from catalog import Catalog
from catalog.errors import CatalogError
from catalog.migration.planning import estimated_seconds
from catalog.migration.states import (
    LatestMigration,
    MigrationState,
    PreFlight,
    TableState,
    is_candidate,
    state_of,
)
from catalog.model import Table
from catalog.operations.records import OperationKind
from catalog.partitions.counting import TableSize

router = APIRouter()

DAG = "migrate_hive_to_iceberg"

_SHOWN = 25
_PAGE = 100
_LOOKING_SECONDS = 1.5
_KEPT_SECONDS = 60 * 60
_KEPT = 10_000
_TICKABLE = (MigrationState.UNKNOWN, MigrationState.READY, MigrationState.REVERTED)

_latest = Remembered(seconds=2)


class _Checks:
    """The checks that people asked for in this process, kept for an hour."""

    def __init__(self) -> None:
        self._checks: dict[int, tuple[float, PreFlight]] = {}

    def get(self, table: Table) -> PreFlight | None:
        """Return the latest check of a table as it is now; None if there is none."""
        kept_at, check = self._checks.get(table.id, (0.0, None))
        is_kept = check is not None and check.version == table.version and time.monotonic() - kept_at < _KEPT_SECONDS
        return check if is_kept else None

    def look(self, catalog: Catalog, table: Table) -> PreFlight:
        """Check a table, and keep the result."""
        check = catalog.migration_states.check(table)
        if len(self._checks) >= _KEPT:
            self._checks.clear()
        self._checks[table.id] = (time.monotonic(), check)
        return check

    def forget(self, table: Table) -> None:
        """Forget the check of a table: what it is refused for may have been settled."""
        self._checks.pop(table.id, None)


_checks = _Checks()


@dataclass(frozen=True)
class Card:
    """A table on the board.

    Attributes:
        latest: Its latest migration or revert.
        partitions, files, rows, size_bytes: As counted by the catalog, or by the last stage; None if unknown.
    """

    table: Table
    state: TableState
    latest: LatestMigration | None
    partitions: int | None
    files: int | None
    rows: int | None
    size_bytes: int | None

    @property
    def seconds(self) -> float | None:
        """How long its migration takes, about; None if its files were not counted."""
        return None if self.files is None else estimated_seconds(self.files)

    @property
    def can_be_ticked(self) -> bool:
        """Whether a migration of it can be asked for."""
        return self.state.state in _TICKABLE and not self.state.is_running


@dataclass(frozen=True)
class Column:
    """The tables of a state."""

    state: MigrationState
    cards: Sequence[Card]

    @property
    def shown(self) -> Sequence[Card]:
        """The first cards."""
        return self.cards[:_SHOWN]

    @property
    def files(self) -> int:
        """The files of all its tables that were counted."""
        return sum(card.files or 0 for card in self.cards)

    @property
    def size_bytes(self) -> int:
        """The bytes of all its tables that were counted."""
        return sum(card.size_bytes or 0 for card in self.cards)

    @property
    def seconds(self) -> float:
        """How long the migrations of its tables whose files were counted take, about, one after the other."""
        return sum(card.seconds or 0 for card in self.cards)


def card_of(catalog: Catalog, table: Table) -> Card:
    """Return the card of one table."""
    return _card(table, _operations(catalog).get(table.id), table_sizes(catalog).get(table.id))


def _operations(catalog: Catalog) -> Mapping[int, LatestMigration]:
    return _latest.get("all", catalog.migration_states.latest)


def _card(table: Table, latest: LatestMigration | None, size: TableSize | None) -> Card:
    state = state_of(table, latest, _checks.get(table))
    stage = None if latest is None else latest.steps.get("stage")
    if size is not None and size.partitions and not size.uncounted:
        return Card(table, state, latest, size.partitions, size.files, size.rows, size.size_bytes)
    partitions = size.partitions if size is not None else None
    if stage is None:
        return Card(table, state, latest, partitions, None, None, None)
    return Card(table, state, latest, partitions, stage.files, stage.rows, stage.size_bytes)


@dataclass(frozen=True)
class Board:
    """The tables that a filter chooses.

    Attributes:
        columns: All states, in their order.
        left_out: The number of tables and views that cannot have a state.
        databases: All databases.
        unknown: The tables that nobody has looked at.
    """

    columns: Sequence[Column]
    left_out: int
    databases: Sequence[str]
    unknown: Sequence[Table]

    @property
    def total(self) -> int:
        """The number of tables on the board."""
        return sum(len(column.cards) for column in self.columns)


def board_of(catalog: Catalog, database: str, search: str) -> Board:
    """Return the board of a database, or of all, with the tables whose names contain a text."""
    tables = catalog.list_tables()
    sizes, latest = table_sizes(catalog), _operations(catalog)
    text = search.strip().lower()
    chosen = [table for table in tables if (not database or table.database == database) and text in table.full_name]
    cards: dict[MigrationState, list[Card]] = defaultdict(list)
    unknown = []
    for table in filter(is_candidate, chosen):
        card = _card(table, latest.get(table.id), sizes.get(table.id))
        cards[card.state.state].append(card)
        if card.state.state is MigrationState.UNKNOWN and _checks.get(table) is None:
            unknown.append(table)
    return Board(
        [Column(state, cards[state]) for state in MigrationState],
        sum(not is_candidate(table) for table in chosen),
        sorted({table.database for table in tables}),
        unknown,
    )


@router.get("/migrations")
def migrations(
    request: Request,
    catalog: OpenCatalog,
    user: User,
    database: str = "",
    search: str = "",
    state: Annotated[MigrationState | None, BeforeValidator(or_none)] = None,
    page: PageNumber = 1,
) -> Response:
    """Show the board, or the list of the tables of one state."""
    board = board_of(catalog, database, search)
    return _shown(request, user, board, database=database, search=search, state=state, page=max(1, page))


@router.post("/migrations/look")
def look_at_all(
    request: Request, catalog: OpenCatalog, user: User, database: str = "", search: str = "", again: bool = False
) -> Response:
    """Check tables that nobody has looked at, for a short time; the answer goes on by itself while some are left.

    Args:
        again: Check those that are refused again, too.
    """
    require_start(user, DAG)
    started = time.monotonic()
    if again:
        for column in board_of(catalog, database, search).columns:
            for card in column.cards if column.state is MigrationState.REFUSED else ():
                _checks.forget(card.table)
    for table in board_of(catalog, database, search).unknown:
        _checks.look(catalog, table)
        if time.monotonic() - started > _LOOKING_SECONDS:
            break
    board = board_of(catalog, database, search)
    return _shown(request, user, board, database=database, search=search, is_looking=bool(board.unknown))


def _shown(
    request: Request,
    user: User,
    board: Board,
    *,
    database: str,
    search: str,
    state: MigrationState | None = None,
    page: PageNumber = 1,
    is_looking: bool = False,
) -> Response:
    column = next((column for column in board.columns if column.state is state), None)
    return render(
        request,
        "migrations_part.html" if is_part(request) else "migrations.html",
        active="migrations",
        board=board,
        column=column,
        listed=[] if column is None else column.cards[(page - 1) * _PAGE : page * _PAGE],
        page=page,
        pages=1 if column is None else max(1, -(-len(column.cards) // _PAGE)),
        states=list(MigrationState),
        state=state,
        database=database,
        search=search,
        is_looking=is_looking,
        may_start=may_start(user, DAG),
        dag=DAG,
    )


@router.get("/migrations/{name}")
def migration(request: Request, catalog: OpenCatalog, user: User, name: str) -> Response:
    """Show the migration of a table: its check, its verification, and what can be done with it."""
    table = catalog.get_table(name)
    return render(request, "migration.html", active="migrations", **_facts(catalog, user, table))


@router.post("/migrations/{name}/look")
def look(request: Request, catalog: OpenCatalog, user: User, name: str) -> Response:
    """Check one table now."""
    require_start(user, DAG)
    table = catalog.get_table(name)
    if is_candidate(table) and not table.is_iceberg:
        _checks.look(catalog, table)
    return render(request, "migration_part.html", active="migrations", **_facts(catalog, user, table))


@router.get("/migrations/{name}/snapshots")
def snapshots(request: Request, catalog: OpenCatalog, user: User, name: str) -> Response:
    """Show the snapshots of a migrated table, and what a revert would lose."""
    table = catalog.get_table(name)
    history, problem = None, None
    try:
        history = catalog.migration_states.history(table)
    except CatalogError as error:
        problem = str(error)
    loses = history is None or not history.written.is_nothing
    return render(
        request,
        "migration_snapshots_part.html",
        table=table,
        history=history,
        problem=problem,
        statement=_revert(table, lose_data=loses),
        may_revert=may_start(user, "run_statement"),
    )


def _revert(table: Table, *, lose_data: bool) -> str:
    arguments = {"schema_name": f"'{table.database}'", "table_name": f"'{table.name}'"}
    arguments |= {"lose_data": "true"} if lose_data else {}
    return f"CALL iceberg.system.revert({', '.join(f'{name} => {value}' for name, value in arguments.items())})"


def _facts(catalog: Catalog, user: User, table: Table) -> dict[str, Any]:
    """Return what the page of a table shows."""
    kinds = (OperationKind.MIGRATE, OperationKind.REVERT)
    operations = catalog.operations.list(table.full_name, kinds=kinds, limit=10)
    # The report of the latest migration: a revert has none of a verification.
    report: Mapping[str, Any] = next(
        (operation.report for operation in operations if operation.kind is OperationKind.MIGRATE), {}
    )
    return {
        "table": table,
        "is_candidate": is_candidate(table),
        "card": card_of(catalog, table),
        "check": _checks.get(table),
        "operations": operations,
        "verified": report.get("verify"),
        "counted": list(_row_counts(report.get("verify") or {})),
        "problems": (report.get("stage") or {}).get("problems", [])[:_PAGE],
        "problem_count": (report.get("stage") or {}).get("problem_count", 0),
        "may_start": may_start(user, DAG),
        "dag": DAG,
    }


def _row_counts(verified: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield the partitions of a verification with their rows in Hive and in Iceberg."""
    yield from verified.get("row_counts", ())
