"""Errors about filter expressions and statements."""

from __future__ import annotations

from catalog.errors.base import CatalogError, InvalidRequestError


class ExpressionError(InvalidRequestError):
    """Invalid filter expression.

    Attributes:
        expression: The whole expression.
        position: Zero-based offset of the offending character; None when there is no such position.
    """

    def __init__(self, problem: str, expression: str, position: int | None = None) -> None:
        """Build the message with the position in the expression."""
        self.expression = expression
        self.position = position
        shown = expression if len(expression) <= 200 else expression[:200] + "…"
        place = "" if position is None else f" at position {position}"
        super().__init__(f"{problem}{place} in expression: {shown}")


class ExpressionSyntaxError(ExpressionError):
    """The expression does not match the grammar."""


class UnknownColumnError(ExpressionError):
    """The expression names a column that is not a partition key."""


class LiteralTypeError(ExpressionError):
    """A literal does not match the type of the key it is compared with."""


class UnsupportedExpressionError(ExpressionError):
    """The expression is valid SQL but outside the filter language."""


class ExpressionTooComplexError(ExpressionError):
    """The expression is too long or too deeply nested."""


class StatementError(InvalidRequestError):
    """Invalid statement.

    Attributes:
        statement: The whole statement.
        position: Zero-based offset of the offending character; None when there is no such position.
    """

    def __init__(self, problem: str, statement: str, position: int | None = None) -> None:
        """Keep the statement and the position."""
        self.statement = statement
        self.position = position
        super().__init__(problem)


class StatementSyntaxError(StatementError):
    """The statement does not match the grammar."""


class UnsupportedStatementError(StatementError):
    """The statement is SQL that Calve does not run, or offers in another form."""


class StatementTooLongError(StatementError):
    """The statement exceeds the maximum length."""


class UnknownTypeError(StatementError):
    """Unknown column type, or a type with an invalid size."""


class InvalidValueError(StatementError):
    """A value of an INSERT is not of its column's type."""


class UnknownProcedureError(StatementError):
    """Unknown procedure."""


class ProcedureArgumentError(StatementError):
    """A procedure argument is missing, unknown, given twice or invalid."""


class InvalidQueryError(StatementError):
    """Spark cannot analyze the query."""


class RefusedStatementError(StatementError):
    """The statement would read or call something that statements may not."""


class EngineError(CatalogError):
    """A statement failed in Spark."""


class EngineUnavailableError(EngineError):
    """The statement needs Spark, which is not installed or does not start."""
