"""Translation of Lark's tree to statements. Each method is named after the rule of `grammar.lark` that it handles."""

from __future__ import annotations

from catalog.statements.translation.changes import Changes
from catalog.statements.translation.definitions import Definitions
from catalog.statements.translation.procedures import Procedures
from catalog.statements.translation.rows import Rows


class Translator(Definitions, Changes, Procedures, Rows):
    """Converts Lark's tree to a statement."""
