"""Filter expressions of GetPartitions: text → tree (`parser`), tree → answer (`evaluation`)."""

from catalog.expressions.evaluation import Predicate, compile_predicate
from catalog.expressions.parser import parse_expression
from catalog.expressions.tree import Expression

__all__ = ["Expression", "Predicate", "compile_predicate", "parse_expression"]
