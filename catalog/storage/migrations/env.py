"""Alembic's environment: it uses the connection of `catalog.storage.upgrade`."""

from __future__ import annotations

from alembic import context

from catalog.storage.schema import Base

VERSION_TABLE = "calve_alembic_version"

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    include_name=lambda name, kind, _parents: kind != "table" or str(name).startswith("calve_"),
    render_as_batch=True,
)
context.run_migrations()
