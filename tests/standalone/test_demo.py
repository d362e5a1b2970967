"""The demo of the stack, which users run beside tables and raw files of their own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from catalog import Catalog
from standalone import demo
from standalone.landing import deliver_flights


def test_a_new_demo_removes_its_own_raw_files_only(tmp_path: Path) -> None:
    raw = tmp_path / "landing"
    deliver_flights(str(raw / "flights"), [1, 12])
    own = [raw / "orders" / "day.csv", raw / "flights" / "mine.csv", raw / "wrong" / "mine.csv", raw / "a.csv"]
    for path in [*own, raw / demo.WRONG_FILE]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    stack: Any = SimpleNamespace(
        api=None, home=tmp_path, environment={}, landing=str(raw), start_command="", stop_command=""
    )
    with Catalog.initialise(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        demo._Demo(stack, catalog)._remove_earlier_demos()
    assert {path for path in raw.rglob("*") if path.is_file()} == set(own)
