"""Locks on names, without rows."""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text

TABLE_LOCKS = 6014_2026
"""The class of the locks on tables; an arbitrary number that other users of the same database are unlikely to use."""


def hold(connection: Connection, *names: str, is_shared: bool = False) -> None:
    """Lock names in the given order until the transaction ends; SQLite serializes writing transactions anyway."""
    if connection.dialect.name == "postgresql":
        function = "pg_advisory_xact_lock_shared" if is_shared else "pg_advisory_xact_lock"
        locks = ", ".join(f"{function}(hashtext(:name_{number}))" for number in range(len(names)))
        connection.execute(text(f"SELECT {locks}"), {f"name_{number}": name for number, name in enumerate(names)})


def try_hold_table(connection: Connection, table_id: int) -> bool:
    """Take a shared lock on a table (`Storage.lock_table`) if no other transaction has an exclusive one.

    Returns:
        Whether the lock was taken; on SQLite always, because no other transaction writes.
    """
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.scalar(select(func.pg_try_advisory_xact_lock_shared(TABLE_LOCKS, table_id))))
