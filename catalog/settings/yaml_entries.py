"""Reading the entries of the YAML list of tables one by one, so that an invalid entry does not affect others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from catalog.errors import InvalidConfigurationError


def read_entries(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each table as written, and a function that returns its entry.

    The function raises InvalidConfigurationError if the entry has a duplicate key or a value that does not exist, such
    as the date 2024-02-31, and RecursionError if it is nested too deeply.

    Raises:
        InvalidConfigurationError: The file is missing, not YAML, or not a mapping of tables.
    """
    try:
        entries = _tables(_compose(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidConfigurationError(
            f"{path} cannot be read: {error.strerror}; CALVE_TABLES, or an argument, names the list of tables"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfigurationError(f"{path} is not YAML: {error}") from None
    except RecursionError:
        raise InvalidConfigurationError(f"{path} nests lists or mappings too deeply; reduce the nesting") from None
    if entries is None:
        raise InvalidConfigurationError(f"{path} needs one mapping `tables:` of table names to entries")
    checked: set[int] = set()
    for key, entry in entries:
        yield str(key.value), partial(_build, entry, checked)


_FastestLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's parser in C, which its wheels have: three times as fast."""


class _Loader(Composer, _FastestLoader):  # type: ignore[misc, valid-type]  # chosen at run time
    """Parser of the list; composes in Python, because the composer in C crashes the process on deep nesting."""

    def __init__(self, text: str) -> None:
        _FastestLoader.__init__(self, text)
        Composer.__init__(self)


def _compose(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, _Loader)
    except yaml.YAMLError:
        # The parser in C also refuses escapes of single values, such as "\\ud800", and explains less.
        return yaml.compose(text, yaml.SafeLoader)


class _Builder(yaml.SafeLoader):
    """Constructor of one entry; rejects duplicate keys, of which PyYAML would keep the last.

    Each entry has its own builder, because a failure leaves unfinished values behind.
    """

    def __init__(self, checked: set[int]) -> None:
        """Create a builder; `checked` has the ids of mappings already checked, shared because aliases share nodes."""
        super().__init__("")
        self._checked = checked

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Reject duplicate keys, then merge the mappings of `<<`, whose keys may be repeated."""
        if id(node) not in self._checked:
            keys = set()
            for key_node, _ in node.value:
                key = (key_node.tag, str(key_node.value))
                if key in keys:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key_node.value} is duplicated; remove one", key_node.start_mark
                    )
                keys.add(key)
            self._checked.add(id(node))
        super().flatten_mapping(node)


def _tables(document: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]] | None:
    """Return the entries of a document; None if it is not a mapping with a mapping of tables."""
    if document is None:
        return []
    if not isinstance(document, yaml.MappingNode):
        return None
    tables = [value for key, value in document.value if key.value == "tables"]
    if not all(isinstance(value, yaml.MappingNode) for value in tables):
        return None
    return [entry for value in tables for entry in value.value]


def _build(node: yaml.Node, checked: set[int]) -> Any:
    try:
        return _Builder(checked).construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InvalidConfigurationError(f"{error.problem}{line}") from None
    except ValueError as error:
        raise InvalidConfigurationError(
            f"a value of the entry in line {node.start_mark.line + 1} is invalid: {error}"
        ) from None
