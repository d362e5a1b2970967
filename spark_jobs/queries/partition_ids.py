"""The hidden column `_partition_id` of tables with a partition scheme, in a SELECT.

An occurrence of a table of which the statement reads the ids gets an additional column with a unique name, and
references to `_partition_id` are replaced by that name. The column is not included in `*`, USING or NATURAL JOIN, and
is visible outside a subquery, common table expression or view only if that selects it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from catalog.errors import UnsupportedExpressionError
from catalog.model import PARTITION_ID
from catalog.statements.query_tables import start_of
from spark_jobs.queries.table_names import end_of

Edit: TypeAlias = tuple[int, int, str]
"""Replacement of a part of a text: start, end and new text."""

_HIDDEN = "calve_partition_id_"


def hidden_name(number: int) -> str:
    """Return the column with the partition ids of one occurrence of a table."""
    return f"{_HIDDEN}{number}"


def plain_name(name: str) -> str:
    """Return the name of a column in catalog filters."""
    return PARTITION_ID if name.startswith(_HIDDEN) else name


class IdReferences:
    """The references to `_partition_id` in one SELECT.

    Attributes:
        places: The numbers of the table occurrences of which the statement reads the ids.
        edits: The edits of the text that replace the references by hidden columns.
    """

    def __init__(self, sql: str, tree: exp.Query, numbers: Mapping[int, int]) -> None:
        """Find and resolve the references.

        Args:
            numbers: Start of an occurrence of a table with a partition scheme → its number.

        Raises:
            UnsupportedExpressionError: A reference is ambiguous, or a `*` cannot be expanded.
        """
        self._sql = sql
        self._numbers = numbers
        self._scopes = {id(scope.expression): scope for scope in traverse_scope(tree)}
        self.places: set[int] = set()
        self.edits: list[Edit] = []
        self._refuse_using(tree)
        for column in tree.find_all(exp.Column):
            if column.name.lower() == PARTITION_ID:
                self._resolve(column)
        if self.places:
            for star in tree.find_all(exp.Star):
                self._leave_out(star)

    def _refuse_using(self, tree: exp.Query) -> None:
        for join in tree.find_all(exp.Join):
            if any(named.name.lower() == PARTITION_ID for named in join.args.get("using") or []):
                raise UnsupportedExpressionError(
                    f"USING ({PARTITION_ID}) is not supported, because it is not a stored column; write "
                    f"ON a.{PARTITION_ID} = b.{PARTITION_ID}",
                    self._sql,
                )

    def _resolve(self, column: exp.Column) -> None:
        scope = self._scope_of(column)
        qualifier = column.table.lower()
        if scope is not None and not qualifier and _is_alias_of_order(column, scope):
            return
        while scope is not None:
            tables = dict(self._tables(scope))
            others = {name.lower() for name, source in _sources(scope) if isinstance(source, Scope)}
            if qualifier in tables:
                return self._refer(column, tables[qualifier])
            if qualifier in others:
                return None
            if not qualifier:
                exposing = [name for name, source in _sources(scope) if isinstance(source, Scope) and _exposes(source)]
                if len(tables) + len(exposing) > 1:
                    names = ", ".join(f"{name}.{PARTITION_ID}" for name in [*tables, *exposing])
                    raise UnsupportedExpressionError(f"{PARTITION_ID} is ambiguous; write one of {names}", self._sql)
                if exposing:
                    return None
                if tables:
                    return self._refer(column, next(iter(tables.values())))
            scope = scope.parent
        return None

    def _scope_of(self, node: exp.Expr) -> Scope | None:
        select = node.find_ancestor(exp.Select)
        return None if select is None else self._scopes.get(id(select))

    def _tables(self, scope: Scope) -> Iterator[tuple[str, int]]:
        for name, source in _sources(scope):
            if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
                number = self._numbers.get(start_of(source.parts[0]))
                if number is not None:
                    yield name.lower(), number

    def _refer(self, column: exp.Column, number: int) -> None:
        self.places.add(number)
        name = column.parts[-1]
        # Keep the name of the column in the result.
        is_output = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
        alias = f" AS `{PARTITION_ID}`" if is_output else ""
        self.edits.append((start_of(name), end_of(name), f"`{hidden_name(number)}`{alias}"))

    def _leave_out(self, star: exp.Star) -> None:
        holder = star.parent
        scope = self._scope_of(star)
        if scope is None or (isinstance(holder, exp.Count) and star.arg_key == "this"):
            return
        tables = {name: number for name, number in self._tables(scope) if number in self.places}
        output: exp.Expr = star
        if isinstance(holder, exp.Column):
            output, tables = holder, {name: tables[name] for name in tables if name == holder.table.lower()}
        if not tables:
            return
        if not (isinstance(output.parent, exp.Select) and output.arg_key == "expressions"):
            raise UnsupportedExpressionError(
                f"a * inside an expression cannot be used with {PARTITION_ID}; name the columns", self._sql
            )
        hidden = ", ".join(f"`{hidden_name(number)}`" for number in sorted(tables.values()))
        end = int(star.meta["end"]) + 1
        excepted = star.args.get("except_") or []
        if excepted:
            identifiers = (identifier for column in excepted for identifier in column.find_all(exp.Identifier))
            start = min(start_of(identifier) for identifier in identifiers)
            self.edits.append((start, start, f"{hidden}, "))
        else:
            self.edits.append((end, end, f" EXCEPT ({hidden})"))


def _sources(scope: Scope) -> Iterator[tuple[str, exp.Table | Scope]]:
    for name, (_, source) in scope.selected_sources.items():
        yield name, source


def _exposes(scope: Scope) -> bool:
    """Return whether a subquery, common table expression or view has a column `_partition_id`."""
    query = scope.expression
    if not isinstance(query, exp.Query):
        return False
    if PARTITION_ID in (name.lower() for name in query.named_selects):
        return True
    is_whole = any(selected.is_star for selected in query.selects)
    return is_whole and any(isinstance(source, Scope) and _exposes(source) for _, source in _sources(scope))


def _is_alias_of_order(column: exp.Column, scope: Scope) -> bool:
    """Return whether ORDER BY, or a similar clause, refers to an output column, which Spark resolves first."""
    after = column.find_ancestor(exp.Order, exp.Sort, exp.Cluster, exp.Distribute, exp.Select)
    query = scope.expression
    if isinstance(after, exp.Select | None) or after.parent is not query or not isinstance(query, exp.Query):
        return False
    return PARTITION_ID in (name.lower() for name in query.named_selects)
