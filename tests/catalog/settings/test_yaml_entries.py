"""Large lists of tables are parsed once for all processes of a host, with the same entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog.settings import table_config, yaml_entries
from catalog.settings.table_config import listed_entry, read_table_list

SHARED = "shared: &base {source_format: json, keys: {day: date}}\ntables:\n"
ODD = (
    "  shop.dated: {<<: *base, source: /d, quality: {columns: {day: {min: 2024-01-01}}}}\n"
    "  shop.numbered: {source: /n, columns: {1: string}}\n"
    "  shop.wrong: {source: /w, source: /x}\n"
    "  shop.impossible: {source: /i, columns: {d: 2024-02-31}}\n"
    "  shop.infinite: {source: /i, quality: {columns: {x: {min: .nan}}}}\n"
    "  shop.endless: &endless {source: /e, merge: *endless}\n"
)


def many(count: int) -> str:
    return "".join(f"  shop.t{number}: {{<<: *base, source: /raw/t{number}}}\n" for number in range(count))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this host; lists of any size are kept."""
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CALVE_TABLES", str(tmp_path / "tables.yaml"))
    monkeypatch.setattr(yaml_entries, "_SMALLEST", 0)
    return tmp_path / "home"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are parsed as YAML."""
    texts: list[str] = []
    compose = yaml_entries._compose
    monkeypatch.setattr(yaml_entries, "_compose", lambda text: texts.append(text) or compose(text))
    return texts


def write(home: Path, text: str) -> None:
    (home.parent / "tables.yaml").write_text(text)


def shown() -> tuple[Any, dict[str, str]]:
    """Return the entries of the list, and the errors of wrong ones."""
    listed = read_table_list()
    return dict(listed.configs), {name: str(wrong.error) for name, wrong in listed.wrong.items()}


def test_a_list_is_parsed_once(home: Path, parsed: list[str]) -> None:
    write(home, SHARED + many(50))
    first = shown()
    assert len(first[0]) == 50
    assert [shown() for _ in range(3)] == [first] * 3
    assert len(parsed) == 1
    write(home, SHARED + many(51))
    assert len(shown()[0]) == 51
    assert len(parsed) == 2
    assert len(list((home / "table-lists").iterdir())) == 1


def test_kept_entries_are_those_of_the_list(home: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, SHARED + many(3) + ODD)
    entries = shown()
    assert [shown(), shown()] == [entries] * 2
    assert {"shop.wrong", "shop.impossible", "shop.endless"} <= entries[1].keys()
    monkeypatch.setattr(yaml_entries, "_SMALLEST", 10**9)
    assert shown() == entries
    parsed.clear()
    monkeypatch.setattr(yaml_entries, "_SMALLEST", 0)
    entry = listed_entry("shop.t2")
    assert entry is not None
    assert (entry.source, parsed) == ("/raw/t2", [])


def test_one_table_needs_only_its_own_entry(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    check = table_config._table_config
    monkeypatch.setattr(table_config, "_table_config", lambda *entry: read.append(entry[1]) or check(*entry))
    write(home, SHARED + many(50) + ODD)
    assert listed_entry("shop.t7") is not None
    assert read == ["shop.t7"]


@pytest.mark.parametrize("content", [b"", b"[[1]]", b"{", b"\xff"])
def test_a_damaged_file_of_entries_is_replaced(home: Path, parsed: list[str], content: bytes) -> None:
    write(home, SHARED + many(5))
    entries = shown()
    [kept] = (home / "table-lists").iterdir()
    kept.write_bytes(content)
    assert [shown(), shown()] == [entries] * 2
    assert len(parsed) == 2


def test_without_a_writable_folder_the_list_is_parsed_each_time(home: Path, parsed: list[str]) -> None:
    home.write_text("not a folder")
    write(home, SHARED + many(5))
    assert shown() == shown()
    assert len(parsed) == 2
