"""`make test-all`, in numbered parts of at most half an hour each, of which it remembers those that have passed.

    python -m tests.parts          # runs each part that has not passed on this commit
    python -m tests.parts 3 4      # runs these parts, whether they have passed or not
    python -m tests.parts list     # shows the parts and their results

The exit code is 1 if a part has failed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.parts.parts import PARTS
from tests.parts.running import run
from tests.parts.state import DamagedStateError, State, current_commit

REPOSITORY = Path(__file__).parents[2]
STATE = REPOSITORY / ".calve" / "test-all.json"


def main(arguments: list[str]) -> int:
    """Run parts; return the exit code."""
    try:
        state = State(STATE)
    except DamagedStateError as error:
        raise SystemExit(str(error)) from error
    if arguments != ["list"]:
        failed = _run(_chosen(arguments) or state.missing(current_commit(REPOSITORY)), state)
        if failed:
            print(f"failed: part(s) {', '.join(map(str, failed))}; `make test-all` repeats them", file=sys.stderr)
            return 1
    print("\n".join(state.table()))
    return 0


def _chosen(arguments: list[str]) -> list[int]:
    for text in arguments:
        if not text.isdecimal() or int(text) not in PARTS:
            raise SystemExit(f"there is no part {text!r}; the parts are 1 to {len(PARTS)}")
    return [int(text) for text in arguments]


def _run(numbers: list[int], state: State) -> list[int]:
    failed = []
    for number in numbers:
        commit = current_commit(REPOSITORY)
        print(f"\npart {number} of {len(PARTS)}: {PARTS[number].title}", flush=True)
        began = time.monotonic()
        has_passed = run(PARTS[number], REPOSITORY) == 0
        if current_commit(REPOSITORY) != commit:
            print("files of the repository have changed meanwhile, so the result is of no commit", flush=True)
            commit = None
        state.record(number, commit, has_passed=has_passed, seconds=time.monotonic() - began)
        if not has_passed:
            failed.append(number)
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
