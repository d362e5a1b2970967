"""The filter language of GetPartitions: parser, expression tree and evaluation."""

from catalog.expressions.evaluation import Filter
from catalog.expressions.parser import parse_expression
from catalog.expressions.tree import Expression

__all__ = ["Expression", "Filter", "parse_expression"]
