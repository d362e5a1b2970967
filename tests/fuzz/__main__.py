"""`make fuzz`: schemathesis on both HTTP doors, mutated frames on that of the Hive Metastore, and what is left behind.

    python -m tests.fuzz [rest] [glue] [sasl] [plain] [soak-rest] [soak-glue] [soak-hms] --minutes 10

Each run gets a server and a catalog of its own, on PostgreSQL. Afterwards, threads, open files, connections to the
database and processes must be as before, memory must not have grown, and the log must have no unexpected error. The
exit code is 1 if there is a problem. Reports stay in `.calve/fuzz`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import glue, refusals, rest, schemas, soaking, thrift
from tests.fuzz.served import Served, serving

STATE = Path(os.environ.get("FUZZ_STATE") or Path(__file__).parents[2] / ".calve" / "fuzz")

_REFUSALS = 800

Outcome = tuple[str, list[str]]


@dataclass(frozen=True)
class Settings:
    """The length of a run, in seconds or in requests, and the seed of its random values."""

    seconds: float
    requests: int
    seed: int


Run = Callable[[Served, Settings], list[Outcome]]


def _rest(served: Served, settings: Settings) -> list[Outcome]:
    document = rest.document(served, STATE)
    found = schemas.fuzz(
        document,
        f"http://{served.server.address('rest')}",
        STATE,
        settings.seconds,
        settings.seed,
        door="rest",
        headers=[f"Authorization: Bearer {rest.token(served)}"],
    )
    return [found, refusals.refused_by_rest(served, _REFUSALS, settings.seed)]


def _glue(served: Served, settings: Settings) -> list[Outcome]:
    url = f"http://{served.server.address('glue')}"
    found = schemas.fuzz(glue.document(served), url, STATE, settings.seconds, settings.seed, door="glue")
    return [found, refusals.refused_by_glue(served, _REFUSALS, settings.seed)]


def _thrift(*, has_sasl: bool) -> Run:
    return lambda served, settings: [thrift.fuzz(served, settings.seconds, settings.seed, has_sasl=has_sasl)]


def _soak(door: str) -> Run:
    return lambda served, settings: [soaking.soak(served, door, settings.requests)]


RUNS: Mapping[str, tuple[str, Run]] = {
    "rest": ("rest", _rest),
    "glue": ("glue", _glue),
    "sasl": ("hms", _thrift(has_sasl=True)),
    "plain": ("hms", _thrift(has_sasl=False)),
    **{f"soak-{door}": (door, _soak(door)) for door in ("rest", "glue", "hms")},
}
"""The door of each run, and what it does."""


def main(arguments: list[str]) -> int:
    """Run the fuzzers; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("runs", nargs="*", choices=[*RUNS, []], help="by default all")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each fuzzer")
    parser.add_argument("--requests", type=int, default=100_000, help="of each soak")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args(arguments)
    settings = Settings(given.minutes * 60, given.requests, given.seed)
    STATE.mkdir(parents=True, exist_ok=True)
    print(f"seed {settings.seed}")
    return int(sum(_report(name, settings) for name in given.runs or RUNS) > 0)


def _report(name: str, settings: Settings) -> int:
    """Run one fuzzer, and print what it has done and found; return the number of problems."""
    door, run = RUNS[name]
    since = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="calve-fuzz-") as folder,
        serving(Path(folder), door, has_keys=name != "plain") as served,
    ):
        before = served.usage()
        try:
            with served.watched():
                outcomes = run(served, settings)
            problems = [problem for _, found in outcomes for problem in found] + served.problems(before)
            after = served.usage()
        finally:
            (STATE / f"{name}-calve-serve.log").write_text(served.server.log)
    print(f"{name}: {len(problems)} problem(s) in {time.monotonic() - since:.0f} s")
    for done, _ in outcomes:
        print(f"  {done}")
    print(f"  before: {before}\n  after:  {after}")
    for problem in problems:
        print(f"  PROBLEM {problem}")
    sys.stdout.flush()
    return len(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
