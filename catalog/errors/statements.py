"""Errors about filter expressions and statements."""

from __future__ import annotations

from catalog.errors.base import CatalogError, InvalidRequestError


class ExpressionError(InvalidRequestError):
    """A filter expression cannot be used.

    Attributes:
        expression: The whole text.
        position: Offset of the offending character, from 0; None when no place can be named.
    """

    def __init__(self, problem: str, expression: str, position: int | None = None) -> None:
        """Point at the place inside the expression."""
        self.expression = expression
        self.position = position
        shown = expression if len(expression) <= 200 else expression[:200] + "…"
        place = "" if position is None else f" at position {position}"
        super().__init__(f"{problem}{place} in expression: {shown}")


class ExpressionSyntaxError(ExpressionError):
    """The expression is not in the grammar."""


class UnknownColumnError(ExpressionError):
    """The expression names something that is not a partition key."""


class LiteralTypeError(ExpressionError):
    """A literal cannot be of the type of the key that it is compared with."""


class UnsupportedExpressionError(ExpressionError):
    """The expression is valid SQL but outside the filter language."""


class ExpressionTooComplexError(ExpressionError):
    """The expression is too long or too deep."""


class StatementError(InvalidRequestError):
    """A statement cannot be used.

    Attributes:
        statement: Its whole text.
        position: Offset of the offending character in it, from 0; None when no place can be named.
    """

    def __init__(self, problem: str, statement: str, position: int | None = None) -> None:
        """Point at the place inside the statement."""
        self.statement = statement
        self.position = position
        super().__init__(problem)


class StatementSyntaxError(StatementError):
    """The statement is not in the grammar."""


class UnsupportedStatementError(StatementError):
    """The statement is SQL that is done elsewhere, or in another way."""


class StatementTooLongError(StatementError):
    """The statement is longer than what is read."""


class UnknownTypeError(StatementError):
    """A column has a type that there is not, or with a size that it cannot have."""


class InvalidValueError(StatementError):
    """A value of an INSERT is not of its column's type."""


class UnknownProcedureError(StatementError):
    """There is no procedure of this name."""


class ProcedureArgumentError(StatementError):
    """An argument of a procedure is missing, unknown, given twice, or not right."""


class InvalidQueryError(StatementError):
    """Spark cannot make sense of a query."""


class RefusedStatementError(StatementError):
    """A statement would read or call what statements may not."""


class EngineError(CatalogError):
    """Spark failed while it was running a statement."""


class EngineUnavailableError(EngineError):
    """A statement needs Spark, which is not installed or does not start."""
