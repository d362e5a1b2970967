"""Sources of loads in a `tables.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest


def list_source(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """Write a list into a folder, with one table that is loaded from a source, and name it in the environment."""
    tables = folder / "tables.yaml"
    tables.write_text(f"tables:\n  shop.t:\n    source: {source}\n    keys: {{k: int}}\n")
    monkeypatch.setenv("CALVE_TABLES", str(tables))
