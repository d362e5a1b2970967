"""Checks of PostgreSQL's settings, which large catalogs need (docs/scaling.md)."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from catalog.maintenance.findings import Finding, FindingKind, found
from catalog.storage import Storage

_LARGEST_PAGE_COST = 2.0
_DEFAULT_BUFFERS_BYTES = 128 * 1024 * 1024
_SCALE_FACTOR = 0.02
_MANY_ROWS = 1_000_000
"""Rows of a table from which a fifth of them, PostgreSQL's default, is too many to wait for until a vacuum."""

_LARGE_TABLES = "calve_partition, calve_index_item, calve_data_file"

_SETTING = text("SELECT setting::float * CASE unit WHEN '8kB' THEN 8192 ELSE 1 END FROM pg_settings WHERE name = :name")
_SIZE = text("SELECT pg_database_size(current_database())")
# Sources: "Storage Parameters" of CREATE TABLE, and the view pg_options_to_table that psql uses, in PostgreSQL's docs.
_SELDOM_VACUUMED = text(
    """
    SELECT relation.relname FROM pg_class AS relation
    WHERE relation.oid = ANY (:tables ::regclass[]) AND relation.reltuples >= :many
    AND :allowed < coalesce(
        (SELECT option_value::float FROM pg_options_to_table(relation.reloptions)
            WHERE option_name = 'autovacuum_vacuum_scale_factor'),
        current_setting('autovacuum_vacuum_scale_factor')::float)
    ORDER BY relation.relname
    """
)


def find_slow_settings(storage: Storage) -> Iterator[Finding]:
    """Yield the settings of PostgreSQL that make pages and searches of this catalog slow; SQLite has none."""
    if not storage.is_postgresql:
        return
    with storage.read() as connection:
        settings = list(_slow_settings(connection))
        wanted = {"tables": f"{{{_LARGE_TABLES}}}", "many": _MANY_ROWS, "allowed": _SCALE_FACTOR}
        seldom = list(connection.scalars(_SELDOM_VACUUMED, wanted))
    for setting, remedy in settings:
        yield from found(FindingKind.SLOW_DATABASE, None, [setting], remedy)
    factors = f"autovacuum_vacuum_scale_factor = {_SCALE_FACTOR}, autovacuum_analyze_scale_factor = {_SCALE_FACTOR}"
    remedy = f"They are vacuumed after a fifth of changed rows: for each, ALTER TABLE … SET ({factors})"
    yield from found(FindingKind.SLOW_DATABASE, None, seldom, remedy)


def _slow_settings(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield settings with their values, and what to do."""
    cost = _setting(connection, "random_page_cost")
    if cost > _LARGEST_PAGE_COST:
        remedy = "Unless the disks have moving parts: ALTER SYSTEM SET random_page_cost = 1.1, then pg_reload_conf()"
        yield f"random_page_cost = {cost:g}", remedy
    buffers, size = _setting(connection, "shared_buffers"), connection.scalar(_SIZE) or 0
    if buffers <= _DEFAULT_BUFFERS_BYTES < size:
        shown = f"shared_buffers = {buffers / 1024**2:,.0f} MB, the database has {size / 1024**2:,.0f} MB"
        yield shown, "ALTER SYSTEM SET shared_buffers to a quarter of the server's memory, then restart it"
    if connection.scalar(text("SELECT NOT current_setting('autovacuum')::bool")):
        yield "autovacuum = off", "ALTER SYSTEM SET autovacuum = on, then pg_reload_conf()"


def _setting(connection: Connection, name: str) -> float:
    return float(connection.scalar(_SETTING, {"name": name}) or 0.0)
