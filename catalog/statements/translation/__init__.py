"""What Lark's tree of a statement means. A method is named after the rule of `grammar.lark` whose parts it takes."""

from __future__ import annotations

from catalog.statements.translation.changes import Changes
from catalog.statements.translation.definitions import Definitions
from catalog.statements.translation.procedures import Procedures
from catalog.statements.translation.rows import Rows


class Translator(Definitions, Changes, Procedures, Rows):
    """Makes a statement of Lark's tree."""
