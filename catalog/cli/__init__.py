"""The `calve` command."""
