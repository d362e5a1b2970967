"""The command line of the embedded stack, which the Makefile calls: `python -m standalone up|down|status|demo`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from standalone import supervisor
from standalone.environment import REPOSITORY
from standalone.errors import StandaloneError
from standalone.unprivileged import run_unprivileged


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m standalone", description="The embedded stack of Calve.")
    parser.add_argument("command", choices=["up", "down", "status", "demo", "supervise"])
    parser.add_argument("--home", type=Path, help="state folder; default: CALVE_HOME, or .calve in the repository")
    parser.add_argument("--cluster", action="store_true", help="with a cluster of Spark, an S3 server, and not as root")
    options = parser.parse_args(arguments)
    home = Path(options.home or os.environ.get("CALVE_HOME") or REPOSITORY / ".calve").resolve()
    if options.cluster and options.home is None:
        home /= "cluster"
    _exit_on_signals()
    try:
        if options.cluster and os.geteuid() == 0:
            run_unprivileged(home, ["-m", "standalone", options.command, "--cluster", "--home", str(home)])
        return _run(options.command, home, cluster=options.cluster)
    except StandaloneError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _run(command: str, home: Path, *, cluster: bool) -> int:
    if command == "status":
        return 0 if supervisor.status(home, print, cluster=cluster) else 1
    if command == "up":
        supervisor.up(home, print, cluster=cluster)
    elif command == "down":
        supervisor.down(home, print)
    elif command == "supervise":
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        supervisor.supervise(home, cluster=cluster)
    else:
        return _demo(home, cluster=cluster)
    return 0


def _demo(home: Path, *, cluster: bool) -> int:
    from standalone import demo

    stack = supervisor.stack_of(home, cluster=cluster)
    if stack.attach():
        return demo.run(stack)
    logging.basicConfig(level=logging.INFO, format="%(message)s ...")
    with stack:
        return demo.run(stack)


def _exit_on_signals() -> None:
    """Exit cleanly on the first SIGINT, SIGTERM or SIGHUP, and ignore later ones."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number: int, _: FrameType | None) -> NoReturn:
        for ignored in signals:
            signal.signal(ignored, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for handled in signals:
        signal.signal(handled, end)


if __name__ == "__main__":
    sys.exit(main())
