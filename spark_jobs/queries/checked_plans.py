"""The check of SQL that others wrote: what it may read and call, decided on Spark's own parsed plan.

Everything is refused that is not known to be harmless: kinds of plans, functions, and names of tables that are neither
the catalog's nor those of common table expressions. The check runs before Spark analyses the plan, because the analysis
opens the files that a path in the place of a table names.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from typing import Any, NoReturn

from py4j.java_gateway import JavaObject, is_instance_of
from pyspark.sql import DataFrame, SparkSession

from catalog.errors import CatalogError, RefusedStatementError, TableNotFoundError
from spark_jobs.queries.allowed_functions import FUNCTIONS, TABLE_FUNCTIONS

MORE_FUNCTIONS = "CALVE_SQL_FUNCTIONS"
"""The environment variable that allows more functions: names with commas between them."""

_CLASSES = {
    "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan": "plan",
    "org.apache.spark.sql.catalyst.expressions.Expression": "expression",
    "org.apache.spark.sql.types.DataType": "leaf",
    "scala.collection.Iterable": "collection",
    "scala.Product": "product",
}
"""Class of the JVM → how its objects are looked into; the first that fits."""

_PLANS = frozenset(
    """
    Aggregate CTERelationDef CTERelationRef Deduplicate Distinct Except Filter Generate GlobalLimit Intersect
    Join LateralJoin LocalLimit LocalRelation Offset OneRowRelation Pivot Project Repartition
    RepartitionByExpression Sample Sort SubqueryAlias Union Unpivot UnresolvedHaving UnresolvedHint
    UnresolvedInlineTable UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTVFAliases
    UnresolvedTableValuedFunction UnresolvedWith Window WithWindowDefinition RebalancePartitions
    RelationTimeTravel WithCTE
    """.split()  # noqa: SIM905 - one word after the other reads better
)
"""Plan nodes that a SELECT may contain; scripts, commands and computed table names are left out."""

_CLAUSES = {
    "ScriptTransformation": "a script (TRANSFORM … USING)",
    "PlanWithUnresolvedIdentifier": "a computed name (IDENTIFIER)",
    "ExpressionWithUnresolvedIdentifier": "a computed name (IDENTIFIER)",
}

_PATTERNS = ("UNRESOLVED_FUNCTION", "PLAN_EXPRESSION", "UNRESOLVED_IDENTIFIER")
"""Spark's marks of expressions that contain a function, a subquery, or a name that is computed."""

_CLOCK_OR_USER = ("CURRENT_LIKE",)
"""Spark's mark of expressions that contain the current time, catalog, database or user."""

_KINDS: dict[str, str] = {}
"""Java class → plan, expression, collection, product or leaf."""


def check_query(spark: SparkSession, sql: str, statement: str, tables: Container[str]) -> None:
    """Refuse a SELECT that could read or call anything but what it may.

    Args:
        sql: The SELECT, in which the catalog's tables have the names of temporary views.
        statement: What the user wrote, at which errors point.
        tables: The names of these views. Tables of Spark's own and other temporary views cannot be read.

    Raises:
        RefusedStatementError: It may not be run.
        TableNotFoundError: It names a table, or a file, that is no table of the catalog.
        ParseException: Spark cannot read it.
    """
    assert spark.sparkContext._jvm is not None
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    # Spark itself replaces the names of common table expressions, whose scopes it alone knows; the others are tables.
    plan = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.analysis.CTESubstitution.apply(plan)
    _check(spark, plan, sql, statement, tables)


def check_analysed(spark: SparkSession, frame: DataFrame) -> None:
    """Refuse an answer with the name of the user that the worker runs as.

    Spark takes `user`, `session_user` and `current_user` for columns, and only if there is no such column for the user.

    Raises:
        RefusedStatementError: It has the user's name.
    """
    analysed = frame._jdf.queryExecution().analyzed()
    for _, name, _ in _nodes(spark, analysed, _CLOCK_OR_USER, plans_too=True):
        if name == "CurrentUser":
            _refuse("the function current_user")


def check_expression(spark: SparkSession, sql: str) -> None:
    """Refuse an expression over the columns of a table that calls anything but what it may.

    Raises:
        RefusedStatementError: It may not be evaluated.
        ParseException: Spark cannot read it.
    """
    _check(spark, spark._jsparkSession.sessionState().sqlParser().parseExpression(sql), sql, sql, ())


def allowed_functions() -> frozenset[str]:
    """Return the names of all functions that a checked statement may call, in lower case."""
    more = os.environ.get(MORE_FUNCTIONS, "")
    return FUNCTIONS | {name.strip().lower() for name in more.split(",") if name.strip()}


def _check(spark: SparkSession, root: Any, sql: str, statement: str, tables: Container[str]) -> None:
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
            raise TableNotFoundError(f"table {table} does not exist; `calve tables` lists the tables there are")
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
    """Return where the user wrote a node; None if its text is there several times, or in a view."""
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
    """Yield every plan, and every expression that contains one of Spark's patterns, from a plan or expression on.

    All fields of all nodes are looked at, because children are not all: a named window keeps its expressions in a map.

    Args:
        plans_too: Leave out the plans that contain none of the patterns, too.
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
    assert spark.sparkContext._jvm is not None
    known = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return [getattr(known, name)() for name in patterns]


def _kind(spark: SparkSession, node: Any) -> str:
    gateway = spark.sparkContext._gateway
    for name, kind in _CLASSES.items():
        if is_instance_of(gateway, node, name):
            return kind
    return "leaf"
