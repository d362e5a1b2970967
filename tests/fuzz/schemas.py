"""Runs schemathesis on a door, by the door's OpenAPI document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]

CHECKS = (
    "no_unexpected_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
"""The checks of answers. None expects that a request is refused, because schemas do not have all rules for requests."""

_WORKERS = 4
_SHOWN = 2_000


def fuzz(
    document: Mapping[str, Any],
    url: str,
    folder: Path,
    seconds: float,
    seed: int,
    *,
    door: str,
    headers: Sequence[str] = (),
) -> tuple[str, list[str]]:
    """Send requests that keep and that break the document's schemas; return what was done, and the problems.

    Args:
        folder: For the document and the report.
        headers: `name: value`, of all requests.
    """
    schema, report = folder / f"{door}-openapi.json", folder / f"{door}-report.json"
    schema.write_text(json.dumps(document))
    options = ["--url", url, "--max-time", str(int(seconds)), "--seed", str(seed), "--workers", str(_WORKERS)]
    options += ["--checks", ",".join(CHECKS), "--continue-on-failure", "--no-color", "--request-timeout", "60"]
    options += ["--suppress-health-check", "all", "--generation-database", "none", "--warnings", "off"]
    options += ["--report", "json", "--report-json-path", str(report)]
    options += [option for header in headers for option in ("--header", header)]
    command = [sys.executable, "-m", "schemathesis.cli", "fuzz", str(schema), *options]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks",
        "FUZZED_DOOR": door,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "plugins")]),
    }
    log = folder / f"{door}-schemathesis.log"
    with log.open("wb") as output:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=output, stderr=output, check=False, timeout=seconds + 300
        )
    if done.returncode not in (0, 1):
        return "", [f"schemathesis ended with {done.returncode}: {log.read_text(errors='replace')[-_SHOWN:]}"]
    found = json.loads(report.read_text())
    cases, operations = found["test_cases"], found["operations"]
    problems = [
        f"{failure['title']}, {failure['count']} times: {', '.join(failure['operations'])}"
        for failure in found["failures"]
    ]
    problems += [f"schemathesis: {json.dumps(error)[:_SHOWN]}" for error in found["errors"]]
    if problems:
        problems.append(f"see {log}")
    return f"{cases['generated']:,} requests to {operations['tested']} of {operations['total']} operations", problems
