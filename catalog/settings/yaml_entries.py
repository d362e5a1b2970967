"""Reading the entries of the YAML list of tables one by one, so that an invalid entry does not affect others.

To parse thousands of entries takes seconds, in each task and each time that Airflow parses the DAG file. The entries of
a large list are therefore kept on this host, by the content of the list.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.composer import Composer

from catalog.errors import InvalidConfigurationError
from catalog.errors.base import did_you_mean, first_of
from catalog.settings.environment import state_folder

_SMALLEST = 50_000
"""The number of characters from which a list is kept; a shorter one is parsed in milliseconds."""

_LARGEST = 100_000_000
"""The number of characters up to which entries are kept: aliases of YAML may stand for very many."""

_FORM = 1
"""Other numbers are for other ways to keep or to parse entries."""


def read_entries(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each table as written, and a function that returns its entry.

    The function raises InvalidConfigurationError if the entry has a duplicate key or a value that does not exist, such
    as the date 2024-02-31, and RecursionError if it is nested too deeply.

    Raises:
        InvalidConfigurationError: The file is missing, not YAML, or not a mapping of tables.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidConfigurationError(
            f"{path} cannot be read: {error.strerror}; CALVE_TABLES, or an argument, names the list of tables"
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidConfigurationError(f"{path} is not YAML: {error}") from None
    if (kept := _read_kept(text)) is None:
        parsed = _parsed(path, text)
        _keep(text, (_built(name, read_entry) for name, read_entry in parsed))
        yield from parsed
        return
    parse = cache(partial(_parsed, path, text))
    for number, entry in enumerate(kept):
        yield entry.name, partial(_entry, entry) if entry.is_kept else partial(_parsed_entry, parse, number)


def _entry(kept: _KeptEntry) -> Any:
    return kept.entry


def _parsed_entry(parse: Callable[[], list[tuple[str, Callable[[], Any]]]], number: int) -> Any:
    return parse()[number][1]()


def _built(name: str, read_entry: Callable[[], Any]) -> _KeptEntry:
    try:
        return _KeptEntry(name, True, read_entry())
    except (InvalidConfigurationError, RecursionError):
        return _KeptEntry(name, False, None)


def _parsed(path: Path, text: str) -> list[tuple[str, Callable[[], Any]]]:
    """Return the entries of a list as `read_entries` does."""
    try:
        document = _compose(text)
        entries = _tables(path, document)
    except yaml.YAMLError as error:
        raise InvalidConfigurationError(f"{path} is not YAML: {error}") from None
    except RecursionError:
        raise InvalidConfigurationError(f"{path} nests lists or mappings too deeply; reduce the nesting") from None
    if entries is None:
        raise InvalidConfigurationError(f"{path} needs one mapping `tables:` of table names to entries")
    checked: set[int] = set()
    read = [(str(key.value), partial(_build, entry, checked)) for key, entry in entries]
    return [*read, *((str(key.value), partial(_refuse, key)) for key in _beside(document))]


def _refuse(key: yaml.Node) -> Any:
    line = key.start_mark.line + 1
    raise InvalidConfigurationError(f"the entry in line {line} is beside `tables:`; move it below, and indent it")


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


def _tables(path: Path, document: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]] | None:
    """Return the entries of a document; None if it is not a mapping with a mapping of tables.

    Raises:
        InvalidConfigurationError: It is empty, or a mapping without tables.
    """
    needed = "needs a mapping `tables:` of table names to entries"
    if document is None:
        raise InvalidConfigurationError(f"{path} is empty; it {needed}, or `tables: {{}}` if there are none")
    if not isinstance(document, yaml.MappingNode):
        return None
    tables = [value for key, value in document.value if key.value == "tables"]
    if not tables and (others := [str(key.value) for key, _ in document.value]):
        similar = next(filter(None, (did_you_mean(other, ["tables"]) for other in others)), "")
        advice = f"{similar} It" if similar else "it"
        raise InvalidConfigurationError(f"{path} has no `tables:`, but {first_of(others, 5)}; {advice} {needed}")
    if not tables:
        return None
    if not all(isinstance(value, yaml.MappingNode) for value in tables):
        return None
    return [entry for value in tables for entry in value.value]


def _beside(document: yaml.Node | None) -> list[yaml.Node]:
    """Return the names of tables in a document that are not among its tables; other fields have no dot."""
    fields = document.value if isinstance(document, yaml.MappingNode) else []
    return [key for key, entry in fields if isinstance(entry, yaml.MappingNode) and "." in str(key.value)]


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


# --- entries that are kept -------------------------------------------------------------------------------------------


class _KeptEntry(NamedTuple):
    """An entry as it was parsed.

    Attributes:
        name: As written.
        is_kept: Whether `entry` is it; otherwise it is wrong, or has values that JSON lacks, such as dates.
    """

    name: str
    is_kept: bool
    entry: Any


def _read_kept(text: str) -> list[_KeptEntry] | None:
    """Return the entries of a list, in its order; None if they are not kept."""
    if len(text) < _SMALLEST:
        return None
    try:
        return [_KeptEntry(*entry) for entry in json.loads(_kept_path(text).read_bytes())]
    except (OSError, ValueError, TypeError):
        return None


def _keep(text: str, entries: Iterable[_KeptEntry]) -> None:
    """Keep the entries of a list, in place of those of an earlier one; where that is not possible, do nothing."""
    if len(text) < _SMALLEST:
        return
    encoded, size = [], 0
    for name, is_kept, entry in entries:
        encoded.append(_encoded(name, is_kept, entry))
        size += len(encoded[-1])
        if size > _LARGEST:
            return
    path = _kept_path(text)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        earlier = list(path.parent.iterdir())
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"[{','.join(encoded)}]")
        os.replace(temporary, path)
        for other in earlier:
            if other != path:
                other.unlink(missing_ok=True)


def _kept_path(text: str) -> Path:
    digest = sha256(f"{_FORM}\n{text}".encode(errors="surrogatepass")).hexdigest()
    return state_folder() / "table-lists" / f"{digest}.json"


def _encoded(name: str, is_kept: bool, entry: Any) -> str:
    """Return an entry as JSON."""
    if is_kept:
        try:
            text = _limited(json.JSONEncoder().iterencode(entry))
            if json.loads(text) == entry:
                return f"[{json.dumps(name)},true,{text}]"
        except (ValueError, TypeError, RecursionError):
            pass
    return f"[{json.dumps(name)},false,null]"


def _limited(parts: Iterable[str]) -> str:
    """Return the parts of a string together.

    Raises:
        ValueError: It is too long.
    """
    chosen, size = list[str](), 0
    for part in parts:
        chosen.append(part)
        size += len(part)
        if size > _LARGEST:
            raise ValueError
    return "".join(chosen)
