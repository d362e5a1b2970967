"""Statements about partition indexes."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.statements.model.base import TableStatement


@dataclass(frozen=True, kw_only=True)
class CreateIndex(TableStatement):
    """CREATE PARTITION INDEX, or Hive's CREATE INDEX, whose columns may be others than partition keys."""

    index: str
    keys: tuple[str, ...]
    is_of_hive: bool = False


@dataclass(frozen=True, kw_only=True)
class DropIndex(TableStatement):
    """DROP PARTITION INDEX."""

    index: str
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class ShowIndexes(TableStatement):
    """SHOW PARTITION INDEXES."""
