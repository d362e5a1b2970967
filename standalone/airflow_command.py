"""The `airflow` command of a running stack, which the file `bin/airflow` in its state folder calls."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from standalone.processes import MARK_VARIABLE
from standalone.state import StackState


def main(home: Path, arguments: list[str]) -> NoReturn:
    """Replace this process by Airflow's command, with the environment of the stack that runs in a state folder."""
    state = StackState.of_running(home)
    if state is None or not state.environment:
        sys.exit(f"No stack is running in {home}, so there is no Airflow to call. Start it: make up")
    # Without its mark, with which the stack would end this process when it stops.
    own = {name: value for name, value in state.environment.items() if name != MARK_VARIABLE}
    program = Path(sys.executable).parent / "airflow"
    os.execve(program, [str(program), *arguments], {**os.environ, **own})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
