"""Statements about databases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog.statements.model.base import Statement


@dataclass(frozen=True, kw_only=True)
class CreateDatabase(Statement):
    """CREATE DATABASE."""

    name: str
    if_not_exists: bool = False
    comment: str | None = None
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DropDatabase(Statement):
    """DROP DATABASE; CASCADE drops its tables, too."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, kw_only=True)
class UseDatabase(Statement):
    """USE: sets the session's database for table names without one."""

    name: str


@dataclass(frozen=True, kw_only=True)
class ShowDatabases(Statement):
    """SHOW DATABASES, all or those that match a pattern (`catalog.tables.patterns.hive_pattern`)."""

    pattern: str | None = None


@dataclass(frozen=True, kw_only=True)
class DescribeDatabase(Statement):
    """DESCRIBE DATABASE."""

    name: str
