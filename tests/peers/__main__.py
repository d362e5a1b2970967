"""`make test-peers`: the suites of Hive's client, of moto's Glue and of Iceberg's REST client, on our front doors.

Each suite gets a server and a catalog of its own, and is compared with a reference: the tests that pass on the peer's
own server. The suites come from Maven Central and PyPI, and stay in `.calve/peers`.

    python -m tests.peers [hive] [glue] [iceberg]

`iceberg=1.11.0` is another version of a suite, of which all tests that fail are shown. The exit code is 1 if a test
fails here, and not on purpose, that passes there.
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
_DELIBERATE = {
    "the key's type": "partition values that are not of their key's type are refused",
    "catalogs cannot be created": "there is one catalog",
}
"""Words of an error → what a test asks that is refused on purpose."""


def main(names: list[str]) -> int:
    """Run suites; return the exit code."""
    chosen = [(name, version) for name, _, version in (text.partition("=") for text in names or SUITES)]
    if unknown := {name for name, _ in chosen} - SUITES.keys():
        raise SystemExit(f"unknown suite(s) {', '.join(sorted(unknown))}; the suites are {', '.join(SUITES)}")
    lost = 0
    for name, version in chosen:
        suite = SUITES[name]
        work = STATE / (f"{name}-{version}" if version else name)
        lost += _report(name, suite, _run(suite, work, version or suite.version), work, version)
    return int(lost > 0)


def _run(suite: Suite, work: Path, version: str) -> Mapping[str, Outcome]:
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
                    return suite.run(server, folder / "warehouse", work, version)
            finally:
                (work / "calve-serve.log").write_text(server.log)


def _report(name: str, suite: Suite, outcomes: Mapping[str, Outcome], work: Path, version: str) -> int:
    """Print and store the outcomes; return the number of tests that pass elsewhere, but not here, without a purpose.

    Args:
        version: Not empty for another version than that of the reference: all tests that ran should pass.
    """
    ran = [test for test, outcome in outcomes.items() if outcome.status != "skipped"]
    expected = ran if version else suite.passed_elsewhere()
    missing = Outcome("did not run")
    lost = {test: found for test in expected if (found := outcomes.get(test, missing)).status != "passed"}
    which = f"of version {version}" if version else "that pass on the peer's own server"
    print(f"{name}: {len(expected) - len(lost)} of the {len(expected)} tests pass {which}")
    for words, purpose in _DELIBERATE.items():
        if refused := [test for test, outcome in lost.items() if words in outcome.reason]:
            print(f"  {len(refused)} fail on purpose: {purpose}")
            lost = {test: outcome for test, outcome in lost.items() if test not in refused}
    for test, outcome in lost.items():
        print(f"  {test}: {outcome.status} {' '.join(outcome.reason.split())[:_LONGEST]}".rstrip())
    stored = {test: vars(outcome) for test, outcome in sorted(outcomes.items())}
    (work / "outcomes.json").write_text(json.dumps(stored, indent=1))
    return len(lost)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
