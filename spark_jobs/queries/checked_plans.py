"""Checks of untrusted SQL on Spark's parsed plan: the tables that it reads and the functions that it calls.

The checks are allowlists of plan nodes, functions and tables; tables are those of the catalog and common table
expressions. They run before Spark analyses the plan, because the analysis opens files that are named by path in place
of a table. Without them nothing runs: a statement is refused if Spark's plans are unknown.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from catalog.errors import CatalogError, RefusedStatementError, TableNotFoundError
from spark_jobs.queries.allowed_functions import FUNCTIONS, TABLE_FUNCTIONS
from spark_jobs.queries.catalyst import UnknownPlansError, known_plans
from spark_jobs.sessions.java_classes import java_class

MORE_FUNCTIONS = "CALVE_SQL_FUNCTIONS"
"""The environment variable that allows more functions: their names, separated by commas."""

_CLASSES = {
    "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan": "plan",
    "org.apache.spark.sql.catalyst.expressions.Expression": "expression",
    "org.apache.spark.sql.types.DataType": "leaf",
    "scala.collection.Iterable": "collection",
    "scala.Product": "product",
}
"""Java class → how its objects are traversed; the first match counts."""

_PLANS = frozenset(
    """
    Aggregate CTERelationDef CTERelationRef Deduplicate Distinct Except Filter Generate GlobalLimit Intersect
    Join LateralJoin LocalLimit LocalRelation Offset OneRowRelation Pivot Project Repartition
    RepartitionByExpression Sample Sort SubqueryAlias Union Unpivot UnresolvedHaving UnresolvedHint
    UnresolvedInlineTable UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTVFAliases
    UnresolvedTableValuedFunction UnresolvedWith Window WithWindowDefinition RebalancePartitions
    RelationTimeTravel WithCTE
    """.split()  # noqa: SIM905 - shorter than a list of strings
)
"""Plan nodes that a SELECT may contain; scripts, commands and computed table names are not among them."""

_CLAUSES = {
    "ScriptTransformation": "a script (TRANSFORM … USING)",
    "PlanWithUnresolvedIdentifier": "a computed name (IDENTIFIER)",
    "ExpressionWithUnresolvedIdentifier": "a computed name (IDENTIFIER)",
}

_PATTERNS = ("UNRESOLVED_FUNCTION", "PLAN_EXPRESSION", "UNRESOLVED_IDENTIFIER")
"""Spark's tree patterns of expressions that contain a function, a subquery or a computed name."""

_CLOCK_OR_USER = ("CURRENT_LIKE",)
"""Spark's tree pattern of expressions that contain the current time, catalog, database or user."""

_KINDS: dict[str, str] = {}
"""Java class → plan, expression, collection, product or leaf."""


@contextmanager
def _checkable(spark: SparkSession) -> Iterator[None]:
    """Refuse a statement whose plan the block cannot check."""
    try:
        with known_plans(spark):
            yield
    except UnknownPlansError as error:
        raise RefusedStatementError(f"the statement cannot be checked, so it is not run: {error}", "") from error


def check_syntax(spark: SparkSession, sql: str) -> None:
    """Check that Spark can parse a statement.

    Raises:
        RefusedStatementError: The statement cannot be checked, because Spark's plans are unknown.
        ParseException: Spark cannot parse the statement.
    """
    with _checkable(spark):
        spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)


def check_query(spark: SparkSession, sql: str, statement: str, tables: Container[str]) -> None:
    """Refuse a SELECT that reads tables or calls functions that are not allowed.

    Args:
        sql: The SELECT, with catalog tables replaced by temporary views.
        statement: The user's text, to which positions in errors refer.
        tables: The names of these views; other temporary views and Spark's own tables are not allowed.

    Raises:
        RefusedStatementError: The SELECT is not allowed, or cannot be checked.
        TableNotFoundError: A table is not in the catalog, or is a file path.
        ParseException: Spark cannot parse the SELECT.
    """
    with _checkable(spark):
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
        # Let Spark resolve common table expressions by its own scope rules; the remaining names are tables.
        plan = java_class(spark.sparkContext, "org.apache.spark.sql.catalyst.analysis.CTESubstitution").apply(plan)
        _check(spark, plan, sql, statement, tables)


def check_analysed(spark: SparkSession, frame: DataFrame) -> None:
    """Refuse an analysed query that reads the name of the worker's operating system user.

    The parser takes `user`, `session_user` and `current_user` for columns; the analysis replaces them by the user's
    name unless such a column exists.

    Raises:
        RefusedStatementError: The query reads the user's name, or cannot be checked.
    """
    with _checkable(spark):
        analysed = frame._jdf.queryExecution().analyzed()
        for _, name, _ in _nodes(spark, analysed, _CLOCK_OR_USER, plans_too=True):
            if name == "CurrentUser":
                _refuse("the function current_user")


def check_expression(spark: SparkSession, sql: str, *, without: Container[str] = ()) -> None:
    """Refuse an expression over the columns of a table that calls functions that are not allowed.

    Args:
        without: As for `refuse_functions`.

    Raises:
        RefusedStatementError: The expression is not allowed, or cannot be checked.
        ParseException: Spark cannot parse the expression.
    """
    if without:
        refuse_functions(spark, sql, without)
    with _checkable(spark):
        _check(spark, _parsed_expression(spark, sql), sql, sql, ())


def refuse_functions(spark: SparkSession, sql: str, functions: Container[str]) -> None:
    """Refuse an expression that calls functions whose values change, also in a subquery.

    Args:
        functions: Their names in lower case.

    Raises:
        RefusedStatementError: It calls one of them.
        ParseException: Spark cannot parse the expression.
    """
    with _checkable(spark):
        for node, name, kind in _nodes(spark, _parsed_expression(spark, sql), _PATTERNS):
            if kind == "expression" and name == "UnresolvedFunction":
                function = _text(node.nameParts()).lower()
                if function in functions:
                    raise RefusedStatementError(
                        f"the function {function} differs from run to run, so it can neither choose rows nor give a "
                        "partition key; compute that from columns",
                        "",
                        _position(node, sql, sql),
                    )


def _parsed_expression(spark: SparkSession, sql: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parseExpression(sql)


def allowed_functions() -> frozenset[str]:
    """Return the names of all allowed functions, in lower case."""
    more = os.environ.get(MORE_FUNCTIONS, "")
    return FUNCTIONS | {name.strip().lower() for name in more.split(",") if name.strip()}


def _check(
    spark: SparkSession,
    root: Any,
    sql: str,
    statement: str,
    tables: Container[str],
) -> None:
    functions = allowed_functions()
    for node, name, kind in _nodes(spark, root, _PATTERNS):
        try:
            if kind == "plan":
                _check_plan(node, name, tables)
            else:
                _check_expression(node, name, functions)
        except CatalogError as error:
            error.position = _position(node, sql, statement)
            raise


def _check_plan(node: Any, name: str, tables: Container[str]) -> None:
    if name not in _PLANS:
        _refuse(_CLAUSES.get(name, f"a clause of the kind {name}"))
    if name == "UnresolvedRelation":
        if (table := _text(node.multipartIdentifier())) not in tables:
            raise TableNotFoundError.named(table)
        if not node.options().isEmpty():
            _refuse("options of a table")
    if name == "UnresolvedTableValuedFunction" and (function := _text(node.name())).lower() not in TABLE_FUNCTIONS:
        _refuse(f"the table function {function}")


def _check_expression(node: Any, name: str, functions: Container[str]) -> None:
    if name == "ExpressionWithUnresolvedIdentifier":
        _refuse(_CLAUSES[name])
    if name == "UnresolvedFunction" and (function := _text(node.nameParts())).lower() not in functions:
        _refuse(f"the function {function}", f"; {MORE_FUNCTIONS} of the workers can allow it")


def _refuse(what: str, advice: str = "") -> NoReturn:
    raise RefusedStatementError(f"{what} cannot be used in a statement; write it without{advice}", "")


def _position(node: Any, sql: str, statement: str) -> int | None:
    """Return the position of a node in the user's text; None if its text occurs there several times, or not at all."""
    start, stop = node.origin().startIndex(), node.origin().stopIndex()
    if start.isEmpty() or stop.isEmpty():
        return None
    text = sql[start.get() : stop.get() + 1]
    return statement.find(text) if statement.count(text) == 1 else None


def _text(names: Any) -> str:
    return ".".join(str(names.apply(position)) for position in range(names.size()))


def _nodes(
    spark: SparkSession, root: Any, patterns: Sequence[str], *, plans_too: bool = False
) -> Iterator[tuple[Any, str, str]]:
    """Yield all plan nodes, and all expressions that contain one of the tree patterns, below a plan or expression.

    All fields are traversed, because nodes have more than children: a named window keeps its expressions in a map.

    Args:
        plans_too: Yield only plan nodes that contain one of the patterns.
    """
    marks = _marks(spark, patterns)
    rest = [root]
    while rest:
        node = rest.pop()
        if not isinstance(node, JavaObject):
            continue
        class_name = str(node.getClass().getName())
        kind = _KINDS.get(class_name) or _KINDS.setdefault(class_name, _kind(spark, node))
        is_marked = kind == "expression" or (plans_too and kind == "plan")
        if is_marked and not any(node.containsPattern(mark) for mark in marks):
            continue
        if kind in ("plan", "expression"):
            yield node, class_name.rpartition(".")[2], kind
        if kind == "collection":
            iterator = node.iterator()
            while iterator.hasNext():
                rest.append(iterator.next())
        elif kind != "leaf" and not class_name.endswith(".LocalRelation"):
            rest += [node.productElement(position) for position in range(node.productArity())]


def _marks(spark: SparkSession, patterns: Sequence[str]) -> list[Any]:
    known = java_class(spark.sparkContext, "org.apache.spark.sql.catalyst.trees.TreePattern")
    return [getattr(known, name)() for name in patterns]


def _kind(spark: SparkSession, node: Any) -> str:
    types = java_class(spark.sparkContext, "py4j.reflection.TypeUtil")
    for name, kind in _CLASSES.items():
        if types.isInstanceOf(name, node):
            return kind
    return "leaf"
