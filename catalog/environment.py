"""What the environment says of this installation."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def state_folder() -> Path:
    """Return the folder of job logs and quality reports: `CALVE_HOME`, or `.calve` beside the project's folders."""
    return Path(os.environ.get("CALVE_HOME") or REPOSITORY / ".calve").absolute()


def tables_path() -> Path:
    """Return the path of the YAML list of tables: `CALVE_TABLES`, or `tables.yaml` beside the project's folders."""
    return Path(os.environ.get("CALVE_TABLES") or REPOSITORY / "tables.yaml")
