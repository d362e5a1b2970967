"""The catalog's clock: the database's, so that hosts need not have synchronized clocks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Connection, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class CurrentMs(FunctionElement[int]):
    """The SQL expression of the database's time, in milliseconds since 1970 UTC.

    On PostgreSQL it is the server's time when the statement runs, not when the transaction began.
    """

    type = BigInteger()
    inherit_cache = True


@compiles(CurrentMs, "postgresql")
def _on_postgresql(_element: CurrentMs, _compiler: Any, **_options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"


@compiles(CurrentMs, "sqlite")
def _on_sqlite(_element: CurrentMs, _compiler: Any, **_options: Any) -> str:
    return "CAST(round((julianday('now') - 2440587.5) * 86400000) AS integer)"


_CLOCK = select(CurrentMs())


def read_clock_ms(connection: Connection) -> int:
    """Return the database's time in milliseconds since 1970 UTC."""
    return connection.execute(_CLOCK).scalar_one()
