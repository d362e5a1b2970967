"""`calve completion`: completion of commands, options and tables in shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_CALVE_COMPLETE"
"""The environment variable with which the script of a shell asks `calve` for completions."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes `calve` in a shell.

    For bash: calve completion bash > ~/.local/share/bash-completion/completions/calve. For zsh and fish, store it in
    a folder of completions, too, or evaluate it when the shell starts: eval "$(calve completion zsh)".
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(context.find_root().command, {}, "calve", VARIABLE).source())
