"""`make test-peers`: the suites of Hive's client, of moto's Glue and of Iceberg's REST client, on our front doors.

Each suite gets a server and a catalog of its own, and is compared with a reference: the tests that pass on the peer's
own server. The suites come from Maven Central and PyPI, and stay in `.calve/peers`.

    python -m tests.peers [hive] [glue] [iceberg]

The exit code is 1 if a test fails here that passes there.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from catalog import Catalog
from standalone.calve_server import CalveServer
from standalone.postgres import PostgresServer
from tests.peers.suites import SUITES, Outcome, Suite

STATE = Path(os.environ.get("PEERS_STATE") or Path(__file__).parents[2] / ".calve" / "peers")

_LONGEST = 300


def main(names: list[str]) -> int:
    """Run suites; return the exit code."""
    if unknown := set(names) - SUITES.keys():
        raise SystemExit(f"unknown suite(s) {', '.join(sorted(unknown))}; the suites are {', '.join(SUITES)}")
    lost = 0
    for name in names or list(SUITES):
        lost += _report(name, SUITES[name], _run(name, SUITES[name]))
    return int(lost > 0)


def _run(name: str, suite: Suite) -> Mapping[str, Outcome]:
    work = STATE / name
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="calve-peers-") as text:
        folder = Path(text)
        with PostgresServer(folder / "postgres", durable=False) as postgres:
            postgres.create_database("calve")
            environment = {
                "CALVE_CATALOG_URL": postgres.url("calve"),
                "CALVE_WAREHOUSE": str(folder / "warehouse"),
                "CALVE_HOME": str(folder),
                # The suites name locations of their own.
                "CALVE_ALLOWED_LOCATIONS": "*",
            }
            with Catalog.initialise(environment["CALVE_CATALOG_URL"]):
                pass
            options = ("--log-level", os.environ.get("PEERS_LOG_LEVEL", "warning"))
            server = CalveServer(folder, doors=(suite.door,), options=options, environment=environment)
            try:
                with server:
                    return suite.run(server, work)
            finally:
                (work / "calve-serve.log").write_text(server.log)


def _report(name: str, suite: Suite, outcomes: Mapping[str, Outcome]) -> int:
    """Print and store the outcomes; return the number of tests that pass elsewhere, but not here."""
    reference = suite.passed_elsewhere()
    missing = Outcome("did not run")
    lost = {test: found for test in reference if (found := outcomes.get(test, missing)).status != "passed"}
    print(f"{name}: {len(reference) - len(lost)} of the {len(reference)} tests pass that pass on the peer's own server")
    for test, outcome in lost.items():
        print(f"  {test}: {outcome.status} {' '.join(outcome.reason.split())[:_LONGEST]}".rstrip())
    stored = {test: vars(outcome) for test, outcome in sorted(outcomes.items())}
    (STATE / name / "outcomes.json").write_text(json.dumps(stored, indent=1))
    return len(lost)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
