"""One PostgreSQL catalog for many tests: emptied between them, which is ten times as fast as a new copy."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg

from standalone.postgres import PostgresServer

_KEPT = ("calve_alembic_version", "calve_catalog")
"""Tables with rows of the schema itself."""

_FINGERPRINT = """
    SELECT md5(concat_ws(',',
        (SELECT string_agg(concat_ws(' ', relname, relkind, relowner, relacl, relhastriggers), ',' ORDER BY relname)
         FROM pg_class WHERE relnamespace = 'public'::regnamespace),
        (SELECT count(*) FROM pg_attribute),
        (SELECT count(*) FROM pg_constraint),
        (SELECT count(*) FROM pg_proc),
        (SELECT count(*) FROM pg_trigger),
        (SELECT count(*) FROM pg_statistic),
        (SELECT count(*) FROM pg_namespace WHERE nspname NOT LIKE 'pg_temp_%' AND nspname NOT LIKE 'pg_toast_%'),
        (SELECT string_agg(setconfig::text, ',') FROM pg_db_role_setting),
        (SELECT string_agg(version_num, ',') FROM calve_alembic_version),
        (SELECT string_agg(identity, ',') FROM calve_catalog)
    ))
"""
"""Whatever a test may change besides rows; planner statistics too, because they change plans."""

_TABLES = """
    SELECT oid::regclass::text, pg_relation_size(oid) < 200000 FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
"""
"""Tables that have had rows since they were truncated, and whether a DELETE is faster than to truncate them again."""

_END_CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity, pg_terminate_backend(pid, 10000)
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class EmptiedDatabase:
    """A copy of a template that is a fresh, initialised catalog for each test in turn.

    Args:
        server: A running server.
        template: The database to copy.
        owner: Owner of the copy.
    """

    def __init__(self, server: PostgresServer, template: str, owner: str) -> None:
        self._server = server
        self._template = template
        self._owner = owner
        self._name = ""
        self._administrator: psycopg.Connection[Any] | None = None
        self._fingerprint = ""

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the database."""
        return self._server.url(self._name, user=self._owner)

    def prepare(self) -> None:
        """Make the database a fresh catalog: empty it, or replace it if more than its rows changed.

        Connections that a test left open are ended.
        """
        if not self._is_emptied():
            self.drop()
            self._name = f"calve_{uuid4().hex}"
            self._server.create_database(self._name, owner=self._owner, template=self._template)
            self._administrator = self._server.connect(self._name)
            # Rows are deleted in any order, without checks of foreign keys.
            self._administrator.execute("SET session_replication_role = replica")
            self._fingerprint = self._look(self._administrator)

    def drop(self) -> None:
        """Drop the database."""
        if self._administrator is not None:
            self._administrator.close()
            self._administrator = None
            self._server.drop_database(self._name)

    def _is_emptied(self) -> bool:
        if self._administrator is None:
            return False
        try:
            return self._empty(self._administrator)
        except psycopg.OperationalError:
            # A test ended all connections, or restarted the server.
            return False

    def _empty(self, connection: psycopg.Connection[Any]) -> bool:
        connection.execute(_END_CONNECTIONS)
        if self._look(connection) != self._fingerprint:
            return False
        for name, is_small in connection.execute(_TABLES).fetchall():
            if name not in _KEPT:
                connection.execute(f"DELETE FROM {name}" if is_small else f"TRUNCATE {name} CASCADE")
        connection.execute("SELECT setval(seqrelid, seqstart, false) FROM pg_sequence")
        return True

    def _look(self, connection: psycopg.Connection[Any]) -> str:
        (found,) = connection.execute(_FINGERPRINT).fetchone() or ("",)
        return str(found)
