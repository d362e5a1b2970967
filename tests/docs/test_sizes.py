"""Sizes of modules and functions, which CONTRIBUTING.md limits."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.snippets import REPOSITORY

FOLDERS = ("benchmarks", "catalog", "dags", "plugins", "spark_jobs", "standalone", "tests")
MODULE_LINES = 500
FUNCTION_LINES = 50
"""Without signature and docstring, which are as long as there is to say."""


def modules() -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in (REPOSITORY / folder).rglob("*.py"):
            yield path.relative_to(REPOSITORY), path.read_text(encoding="utf-8")


def functions(statements: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield functions and those inside of them; expressions, of which there are many more, have none."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from functions(ast.iter_child_nodes(node))


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    has_docstring = ast.get_docstring(function) is not None
    before = function.body[0].end_lineno if has_docstring else function.body[0].lineno - 1
    assert before is not None
    assert function.end_lineno is not None
    return function.end_lineno - before


def test_modules_and_functions_are_short() -> None:
    too_long = []
    for path, text in modules():
        if (count := len(text.splitlines())) > MODULE_LINES:
            too_long.append(f"{path} has {count} lines; divide it by its subjects, into at most {MODULE_LINES} each")
        for node in functions(ast.parse(text).body):
            if (count := own_lines(node)) > FUNCTION_LINES:
                too_long.append(f"{path}: {node.name} has {count} lines; divide it, into at most {FUNCTION_LINES} each")
    assert too_long == []


def test_limits_are_those_that_contributors_read() -> None:
    rules = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"Modules of at most {MODULE_LINES} lines, functions of at most {FUNCTION_LINES}" in rules
