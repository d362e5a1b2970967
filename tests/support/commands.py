"""The command line, run in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from catalog.cli.main import main


def calve(*arguments: str, **environment: str) -> Result:
    """Run `calve` with arguments and environment variables."""
    return CliRunner().invoke(main, arguments, env=environment)
