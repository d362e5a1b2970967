"""Answers for those who wait for partitions: thousands of questions with a few statements.

Named partitions are looked up together, by identity. The search for an expression is repeated only when its answer may
have changed: the table or its newest partition is another one, or a partition that kept the answer from being complete
has changed. Other changes, such as new values of an old partition, are noticed after `_REPEAT_SECONDS`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    LargeBinary,
    Select,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from catalog.errors import CatalogError, CatalogUnavailableError, InvalidPartitionSpecError
from catalog.expressions import parse_expression
from catalog.iceberg.pointers import pointer_of
from catalog.model import PartitionState, Table
from catalog.model.identifiers import TableName
from catalog.partitions.awaited import (
    AwaitedPartitions,
    AwaitedState,
    PartitionName,
    QualityDemand,
    name_of,
    values_of,
    with_partitions,
)
from catalog.partitions.scanning import Scanner
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.partition_rows import newest_partition
from catalog.storage.schema import DatabaseRow, PartitionCheckRow, PartitionRow, TableRow
from catalog.storage.values import ValueEncoder
from catalog.tables.definitions import Definitions

if TYPE_CHECKING:
    from catalog.model import Partition

T = TypeVar("T")

_LOOKED_UP = 1_000
"""The number of partitions of one statement; of more, PostgreSQL may read the whole table instead."""

_REPEAT_SECONDS = 60.0
_SEARCH_SECONDS = 2.0
"""The time after which a call begins no more searches; the next call begins with the others."""

_REST = 20
"""A search is repeated after this multiple of its own duration at the earliest."""

_FORGOTTEN_SECONDS = 7_200.0
"""The time after which a search is forgotten, unless the latest call asks for it."""

_WATCHED = 1_000
"""The number of incomplete partitions of a search whose changes lead to the next search."""


class _Status(NamedTuple):
    """The state of a partition: whether it is quarantined, and the verdict on it; None if it was never checked.

    A partition that failed its check has passed if a person has released it with a reason.
    """

    is_quarantined: bool
    passed: bool | None

    def under(self, demand: QualityDemand) -> str:
        """Return the attribute of `AwaitedState` that counts the partition."""
        if self.is_quarantined:
            return "hidden"
        if demand is QualityDemand.IGNORED or self.passed:
            return "ready"
        if self.passed is None:
            return "unchecked" if demand is QualityDemand.REQUIRED else "ready"
        return "failed"


@dataclass(frozen=True)
class _Known:
    """A table as it was read last, and its newest partition."""

    table: Table
    newest: int

    @property
    def version(self) -> tuple[int, int]:
        """The identity and the version of the definition."""
        return self.table.id, self.table.version


@dataclass(frozen=True)
class _Search:
    """The result of the last search for an expression.

    Attributes:
        found: The number of partitions by the attribute of `AwaitedState` that counts them.
        watched: Partitions that are not ready → the attribute that counts them.
        began_at, seconds: When the search began, on the monotonic clock, and how long it took.
    """

    known: _Known
    found: Mapping[str, int]
    watched: Mapping[int, str]
    began_at: float
    seconds: float

    def state(self, at_least: int) -> AwaitedState:
        matches = sum(self.found.values())
        return AwaitedState(max(at_least, matches), missing=max(0, at_least - matches), **self.found)


_SearchKey: TypeAlias = tuple[str, str | None, QualityDemand]


@dataclass
class _Memory:
    """Results that are kept between two calls, for the questions of the latest call only.

    Searches are kept for longer, because several callers may take turns, and each begins with the oldest.
    """

    tables: dict[TableName, _Known] = field(default_factory=dict)
    identities: dict[AwaitedPartitions, tuple[tuple[int, int], list[bytes]]] = field(default_factory=dict)
    searches: dict[_SearchKey, _Search] = field(default_factory=dict)
    followed: dict[TableName, str | None] = field(default_factory=dict)


class PartitionWaits:
    """Answers questions of those who wait for partitions, many at a time and again and again. It is thread-safe."""

    def __init__(self, storage: Storage, definitions: Definitions, scanner: Scanner) -> None:
        """Set the storage, the definitions in it, and the searches."""
        self._storage = storage
        self._definitions = definitions
        self._scanner = scanner
        self._memory = _Memory()
        self._lock = Lock()

    def question(
        self,
        table: str,
        partitions: Iterable[PartitionName] | None = None,
        *,
        expression: str | None = None,
        at_least: int = 1,
        quality: QualityDemand = QualityDemand.IF_CHECKED,
    ) -> AwaitedPartitions:
        """Return a question for `look`.

        Args:
            partitions: The partitions by name; None with an expression.
            expression: A filter, for instance `day = '2024-05-01'`; None or empty for all partitions.

        Raises:
            TableNotFoundError: The table does not exist.
            NotATableError, IcebergTableError: It is a view, or an Iceberg table.
            InvalidPartitionSpecError: A partition is not named by a value for each key of the table, the table has
                none, or there is no partition.
            ExpressionError: The expression is invalid.
        """
        definition = with_partitions(self._definitions.get_table(table))
        if partitions is None:
            parse_expression(expression, definition)
            return AwaitedPartitions(definition.full_name, (), expression, at_least, quality)
        names = tuple(dict.fromkeys(name_of(definition, partition) for partition in partitions))
        if not names:
            raise InvalidPartitionSpecError(f"no partition of {definition.full_name} is named; name at least one")
        return AwaitedPartitions(definition.full_name, names, None, len(names), quality)

    def look(self, questions: Collection[AwaitedPartitions]) -> dict[AwaitedPartitions, AwaitedState | CatalogError]:
        """Return the state of each question, or the error that prevents the wait, such as a table that was dropped.

        A call needs one statement for the tables, one for each thousand named partitions, and the searches that have
        to be repeated; it begins none after two seconds, and then returns earlier states, or that partitions are
        missing.

        Raises:
            CatalogUnavailableError: The catalog cannot be reached.
        """
        with self._lock:
            answers: dict[AwaitedPartitions, AwaitedState | CatalogError] = {}
            by_table: dict[TableName, list[AwaitedPartitions]] = {}
            for question in questions:
                by_table.setdefault(TableName.parse(question.table), []).append(question)
            tables, errors = self._read_tables(by_table)
            answers |= {question: errors[name] for name in errors for question in by_table[name]}
            usable = {question: known for name, known in tables.items() for question in by_table[name]}
            named = {question: known for question, known in usable.items() if question.names}
            answers |= self._named(named)
            answers |= self._searched({question: usable[question] for question in usable.keys() - named.keys()})
            return {question: answers[question] for question in questions}

    # --- tables -------------------------------------------------------------------------------------------------

    def _read_tables(
        self, names: Collection[TableName]
    ) -> tuple[dict[TableName, _Known], dict[TableName, CatalogError]]:
        """Return tables, and the errors of those that cannot be waited for."""
        tables, errors = self._current(names)
        behind = [name for name, known in tables.items() if self._is_behind(name, known.table)]
        for name in behind:
            with _caught(errors, name):
                self._follow(tables[name].table)
        if behind:
            tables |= self._current(behind)[0]
            tables = {name: known for name, known in tables.items() if name not in errors}
        self._memory.tables = tables
        self._memory.followed = {name: known.table.live_location for name, known in tables.items()}
        return tables, errors

    def _is_behind(self, name: TableName, table: Table) -> bool:
        """Return whether another engine has committed to a table stored as Iceberg, which was not followed yet."""
        is_other = table.live_location != table.published_location
        return is_other and self._memory.followed.get(name) != table.live_location

    def _follow(self, table: Table) -> None:
        from catalog.datafiles.intake import reading_current

        with reading_current(self._storage, self._definitions, table.full_name):
            pass

    def _current(self, names: Collection[TableName]) -> tuple[dict[TableName, _Known], dict[TableName, CatalogError]]:
        tables: dict[TableName, _Known] = {}
        errors: dict[TableName, CatalogError] = {}
        with self._storage.read() as connection:
            newest, changed = dict[TableName, int](), list[TableName]()
            for row in connection.execute(_versions(connection, names)):
                name = TableName(row.database, row.name)
                if name not in names:
                    continue
                newest[name] = row.newest or 0
                known = self._memory.tables.get(name)
                if known is not None and _version(known.table) == tuple(row[2:6]):
                    tables[name] = _Known(known.table, newest[name])
                else:
                    changed.append(name)
            for batch in batched(changed):
                for table in self._definitions.get_tables(connection, batch):
                    name = TableName(table.database, table.name)
                    with _caught(errors, name):
                        tables[name] = _Known(with_partitions(table), newest[name])
            for name in names:
                if name not in tables and name not in errors:
                    # Raises the error of a table that does not exist.
                    with _caught(errors, name):
                        self._definitions.get_table(name, connection)
        return tables, errors

    # --- named partitions ---------------------------------------------------------------------------------------

    def _named(
        self, questions: Mapping[AwaitedPartitions, _Known]
    ) -> Iterator[tuple[AwaitedPartitions, AwaitedState | CatalogError]]:
        """Yield the states of questions with names."""
        known_identities, self._memory.identities = self._memory.identities, {}
        encoders: dict[int, ValueEncoder] = {}
        for question, known in questions.items():
            version, identities = known_identities.get(question, (None, []))
            if version != known.version:
                encoder = encoders.setdefault(known.table.id, ValueEncoder(known.table))
                try:
                    identities = [encoder.identity(values_of(known.table, name)) for name in question.names]
                except CatalogError as error:
                    yield question, error
                    continue
            self._memory.identities[question] = known.version, identities
        asked = {
            (version[0], identity)
            for version, identities in self._memory.identities.values()
            for identity in identities
        }
        with self._storage.read() as connection:
            statuses = _look_up(connection, asked)
        for question, (version, identities) in self._memory.identities.items():
            found = [statuses.get((version[0], identity)) for identity in identities]
            counts = Counter("missing" if status is None else status.under(question.quality) for status in found)
            yield question, AwaitedState(len(identities), **counts)

    # --- expressions --------------------------------------------------------------------------------------------

    def _searched(
        self, questions: Mapping[AwaitedPartitions, _Known]
    ) -> Iterator[tuple[AwaitedPartitions, AwaitedState | CatalogError]]:
        """Yield the states of questions with an expression."""
        now, failures = time.monotonic(), dict[_SearchKey, CatalogError]()
        known = {_search_key(question): known for question, known in questions.items()}
        searches = {
            key: search
            for key, search in self._memory.searches.items()
            if key in known or now - search.began_at < _FORGOTTEN_SECONDS
        }
        # An answer that ends a wait is asked for once, or by another caller, for whom it may be outdated.
        ended = {_search_key(question) for question in questions if _is_ended(searches, question)}
        watched = {number for key in known.keys() & searches.keys() for number in searches[key].watched}
        with self._storage.read() as connection:
            statuses = _look_up_ids(connection, watched)
        due = [key for key in known if key in ended or _is_due(searches.get(key), known[key], statuses, key[2], now)]
        for key in sorted(due, key=lambda key: searches[key].began_at if key in searches else 0.0):
            if time.monotonic() > now + _SEARCH_SECONDS:
                break
            with _caught(failures, key):
                searches[key] = self._search(key, known[key])
        self._memory.searches = {key: search for key, search in searches.items() if key not in failures}
        for question in questions:
            key = _search_key(question)
            search = self._memory.searches.get(key)
            state = search.state(question.at_least) if search else _unknown(question)
            yield question, failures.get(key, state)

    def _search(self, key: _SearchKey, known: _Known) -> _Search:
        began_at, found, watched = time.monotonic(), Counter[str](), dict[int, str]()
        table, expression, quality = key
        scan = self._scanner.scan(table, expression, use_indexes=True, state=None)
        for batch in batched(scan.partitions):
            for number, status in self._statuses(batch, quality).items():
                attribute = status.under(quality)
                found[attribute] += 1
                if attribute != "ready" and len(watched) < _WATCHED:
                    watched[number] = attribute
        return _Search(known, found, watched, began_at, time.monotonic() - began_at)

    def _statuses(self, partitions: Sequence[Partition], quality: QualityDemand) -> dict[int, _Status]:
        checks: dict[int, bool] = {}
        ids = [partition.id for partition in partitions]
        if quality is not QualityDemand.IGNORED:
            check = PartitionCheckRow
            with self._storage.read() as connection:
                query = select(check.partition_id, _PASSED).where(among(connection, check.partition_id, ids))
                checks = {row.partition_id: row.passed for row in connection.execute(query)}
        return {
            partition.id: _Status(partition.state is PartitionState.QUARANTINED, checks.get(partition.id))
            for partition in partitions
        }


@contextmanager
def _caught(errors: dict[T, CatalogError], key: T) -> Iterator[None]:
    """Record an error under a key, unless the catalog cannot be reached."""
    try:
        yield
    except CatalogUnavailableError:
        raise
    except CatalogError as error:
        errors[key] = error


def _search_key(question: AwaitedPartitions) -> _SearchKey:
    return question.table, question.expression, question.quality


def _is_ended(searches: Mapping[_SearchKey, _Search], question: AwaitedPartitions) -> bool:
    search = searches.get(_search_key(question))
    return search is not None and search.state(question.at_least).is_ready


def _unknown(question: AwaitedPartitions) -> AwaitedState:
    return AwaitedState(question.at_least, missing=question.at_least)


def _is_due(
    search: _Search | None, known: _Known, statuses: Mapping[int, _Status], quality: QualityDemand, now: float
) -> bool:
    """Return whether the answer of a search may have changed."""

    def attribute(number: int) -> str | None:
        status = statuses.get(number)
        return None if status is None else status.under(quality)

    if search is None or search.known.version != known.version:
        return True
    if now < search.began_at + _REST * search.seconds:
        return False
    before, after = search.known, known
    is_same = (before.newest, before.table.published_location) == (after.newest, after.table.published_location)
    return (
        not is_same
        or now >= search.began_at + _REPEAT_SECONDS
        or any(attribute(number) != counted for number, counted in search.watched.items())
    )


def _version(table: Table) -> tuple[int, int, str | None, str | None]:
    """Return what `_versions` reads of a table whose definition has not changed."""
    live = table.live_location if table.is_published else table.metadata_location
    return table.id, table.version, table.published_location, live


def _versions(connection: Connection, names: Collection[TableName]) -> Select[Any]:
    """Return the query of the versions and the newest partitions of tables, and perhaps of others."""
    newest = newest_partition(TableRow.id.expression).correlate(TableRow).scalar_subquery()
    pointer = func.coalesce(pointer_of(DatabaseRow.name, TableRow.name), TableRow.published_location)
    return (
        select(
            DatabaseRow.name.label("database"),
            TableRow.name,
            TableRow.id,
            TableRow.version,
            TableRow.published_location,
            pointer.label("pointer"),
            newest.label("newest"),
        )
        .join(DatabaseRow, TableRow.database_id == DatabaseRow.id)
        .where(
            among(connection, DatabaseRow.name, list({name.database for name in names})),
            among(connection, TableRow.name, list({name.name for name in names})),
        )
    )


_PASSED = or_(PartitionCheckRow.passed, PartitionCheckRow.release_number.is_not(None)).label("passed")
_STATUS = (PartitionRow.is_quarantined, case((PartitionCheckRow.partition_id.is_not(None), _PASSED)))


def _look_up(connection: Connection, partitions: Iterable[tuple[int, bytes]]) -> dict[tuple[int, bytes], _Status]:
    """Return the statuses of those partitions that exist, by table id and identity."""
    row, check, statuses = PartitionRow, PartitionCheckRow, dict[tuple[int, bytes], _Status]()
    for batch in batched(partitions, _LOOKED_UP):
        query = select(row.table_id, row.identity, *_STATUS).outerjoin(check, check.partition_id == row.id)
        if connection.dialect.name == "postgresql":
            ids, identities = zip(*batch, strict=True)
            asked = (
                func.unnest(literal(list(ids), ARRAY(BigInteger)), literal(list(identities), ARRAY(LargeBinary)))
                .table_valued("table_id", "identity")
                .render_derived("asked")
            )
            query = query.join(asked, and_(asked.c.table_id == row.table_id, asked.c.identity == row.identity))
        else:
            query = query.where(tuple_(row.table_id, row.identity).in_(batch))
        for table_id, identity, *status in connection.execute(query):
            statuses[table_id, bytes(identity)] = _Status(*status)
    return statuses


def _look_up_ids(connection: Connection, ids: Iterable[int]) -> dict[int, _Status]:
    """Return the statuses of those partitions that exist, by id."""
    row, check, statuses = PartitionRow, PartitionCheckRow, dict[int, _Status]()
    for batch in batched(ids, _LOOKED_UP):
        query = select(row.id, *_STATUS).outerjoin(check, check.partition_id == row.id)
        for number, *status in connection.execute(query.where(among(connection, row.id, batch))):
            statuses[number] = _Status(*status)
    return statuses
