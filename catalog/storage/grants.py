"""The rights of Spark jobs in the catalog's database, for a role of their own."""

from __future__ import annotations

from psycopg import sql
from sqlalchemy import Table, text

from catalog.errors import InvalidConfigurationError
from catalog.storage.engine import Storage
from catalog.storage.schema import ApprovalRow, Base, CatalogRow
from catalog.storage.upgrade import VERSION_TABLE

_HIDDEN = {ApprovalRow.__tablename__}
"""Tasks of Airflow check approvals; a job, which runs statements of users, must not be able to give one."""
_READ_ONLY = {CatalogRow.__tablename__, VERSION_TABLE}
_CHANGED = sql.SQL("SELECT, INSERT, UPDATE, DELETE")

_HEADER = """\
-- The rights of Calve's Spark jobs: rows of the catalog, but no schema changes and no approvals.
-- Run this as the owner of the database, and again after each `calve init` that upgrades the schema.
-- Then give the role a password, for instance with \\password in psql.
"""


def job_grants(storage: Storage, role: str) -> str:
    """Return the SQL that creates a role for jobs and gives it the rights that they need; repeatable.

    Raises:
        InvalidConfigurationError: The catalog is not on PostgreSQL, or the role owns the catalog, whose rights the SQL
            would take away.
    """
    if not storage.is_postgresql:
        raise InvalidConfigurationError(
            "the catalog is on SQLite, which has no roles; set CALVE_CATALOG_URL to a catalog on PostgreSQL"
        )
    with storage.read() as connection:
        schema = str(connection.scalar(text("SELECT current_schema()")))
        query = text("SELECT tableowner FROM pg_tables WHERE schemaname = :schema AND tablename = :name")
        owner = connection.scalar(query, {"schema": schema, "name": VERSION_TABLE})
    if role in (owner, storage.url.username):
        raise InvalidConfigurationError(
            f"role {role!r} owns the catalog or is that of CALVE_CATALOG_URL, and would lose its rights; name another "
            "role, for jobs only"
        )
    tables = [table for table in Base.metadata.sorted_tables if table.name not in _HIDDEN]
    changed = [table for table in tables if table.name not in _READ_ONLY]
    names = {
        "role": sql.Identifier(role),
        "role_name": sql.Literal(role),
        "database": sql.Identifier(str(storage.url.database)),
        "schema": sql.Identifier(schema),
        "read": _listed(schema, sorted(_READ_ONLY)),
        "changed": _listed(schema, [table.name for table in changed]),
        "sequences": _listed(schema, [name for table in changed if (name := _sequence(table))]),
        "rights": _CHANGED,
    }
    return _HEADER + sql.SQL(_STATEMENTS).format(**names).as_string()


_STATEMENTS = """\
DO $$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = {role_name}) THEN
    CREATE ROLE {role} LOGIN;
  END IF;
END $$;
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM {role};
GRANT CONNECT ON DATABASE {database} TO {role};
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON
  {read}
  TO {role};
GRANT {rights} ON
  {changed}
  TO {role};
GRANT USAGE ON SEQUENCE
  {sequences}
  TO {role};
"""


def _listed(schema: str, names: list[str]) -> sql.Composed:
    return sql.SQL(",\n  ").join(sql.Identifier(schema, name) for name in names)


def _sequence(table: Table) -> str | None:
    """Return the name that PostgreSQL gives to the sequence of a table's generated id; None without one."""
    column = table.autoincrement_column
    return None if column is None else f"{table.name}_{column.name}_seq"
