"""Locks on names, without rows."""

from __future__ import annotations

from sqlalchemy import Connection, text


def hold(connection: Connection, *names: str, is_shared: bool = False) -> None:
    """Lock names in the given order until the transaction ends; SQLite serializes writing transactions anyway."""
    if connection.dialect.name == "postgresql":
        function = "pg_advisory_xact_lock_shared" if is_shared else "pg_advisory_xact_lock"
        locks = ", ".join(f"{function}(hashtext(:name_{number}))" for number in range(len(names)))
        connection.execute(text(f"SELECT {locks}"), {f"name_{number}": name for number, name in enumerate(names)})
