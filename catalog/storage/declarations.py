"""Declarations of SQL tables as classes, for statements of SQLAlchemy Core.

They are written as for SQLAlchemy's ORM, whose sessions and mapped objects the catalog does not use: importing it, and
mapping the classes, takes a third of the time of a short command.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, Table
from sqlalchemy.types import TypeEngine

__all__ = ["Declaration", "Mapped", "mapped_column"]

_ANNOTATION = re.compile(r"Mapped\[(?P<type>.+?)(?P<null> \| None)?\]")
_TYPES: dict[str, type[TypeEngine[Any]]] = {
    "bool": Boolean,
    "int": BigInteger,
    "dict[str, Any]": JSON,
    "list[Any]": JSON,
}
"""The SQL types of annotations, for columns without arguments; a foreign key has the type of its target."""


class _Declared:
    """The arguments of a column whose name and type are in its annotation."""

    def __init__(self, arguments: Sequence[Any], options: dict[str, Any]) -> None:
        self.arguments = arguments
        self.options = options


def _column(cls: type, name: str, annotation: str) -> Column[Any]:
    match = _ANNOTATION.fullmatch(annotation)
    assert match is not None, annotation
    declared = cls.__dict__.get(name) or _Declared((), {})
    arguments = declared.arguments or (_TYPES[match["type"]],)
    return Column(name, *arguments, nullable=match["null"] is not None, **declared.options)


if TYPE_CHECKING:
    # Type checkers know what statements return from the ORM's declarations.
    from sqlalchemy.orm import DeclarativeBase as Declaration
    from sqlalchemy.orm import Mapped, mapped_column
else:
    Mapped = Column

    def mapped_column(*arguments, **options):
        """Declare a column, with the arguments of `sqlalchemy.Column` without name and `nullable`."""
        return _Declared(arguments, options)

    class Declaration:
        """Base of the class that has the metadata, and of the classes of its tables.

        A class with a `__tablename__` declares a table. Its attributes are the table's columns, and statements take the
        class as they take a table.
        """

        __table_args__ = ()

        def __init_subclass__(cls):
            """Create the table of a class."""
            super().__init_subclass__()
            if "__tablename__" not in cls.__dict__:
                return
            columns = [_column(cls, name, annotation) for name, annotation in cls.__annotations__.items()]
            given = cls.__table_args__ if isinstance(cls.__table_args__, tuple) else (cls.__table_args__,)
            constraints = [argument for argument in given if not isinstance(argument, dict)]
            options = ChainMap(*(argument for argument in given if isinstance(argument, dict)))
            cls.__table__ = Table(cls.__tablename__, cls.metadata, *columns, *constraints, **options)
            for column in columns:
                setattr(cls, column.name, column)

        @classmethod
        def __clause_element__(cls):
            """Return the table, for statements."""
            return cls.__table__
