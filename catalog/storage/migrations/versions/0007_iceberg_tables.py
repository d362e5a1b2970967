"""Add Iceberg tables and their metadata locations.

The two SQL tables of pointers have the names and columns of PyIceberg's SqlCatalog (0.12) and of Iceberg's JDBC
catalog, so that both use them. If they already exist in this database, they only get the column that distinguishes
tables from views.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.add_column("calve_table", sa.Column("table_type", sa.String(16), nullable=False, server_default="HIVE"))
    op.create_table(
        "calve_shared_location",
        sa.Column("location", sa.String(1000), nullable=False),
        sa.Column("table_namespace", sa.String(255), nullable=False),
        sa.Column("table_name", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("location", "table_namespace", "table_name", name=op.f("pk_calve_shared_location")),
    )
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table("iceberg_tables"):
        op.create_table(
            "iceberg_tables",
            sa.Column("catalog_name", sa.String(255), nullable=False),
            sa.Column("table_namespace", sa.String(255), nullable=False),
            sa.Column("table_name", sa.String(255), nullable=False),
            sa.Column("metadata_location", sa.String(1000), nullable=True),
            sa.Column("previous_metadata_location", sa.String(1000), nullable=True),
            sa.Column("iceberg_type", sa.String(5), nullable=True),
            sa.PrimaryKeyConstraint("catalog_name", "table_namespace", "table_name", name=op.f("pk_iceberg_tables")),
        )
    elif "iceberg_type" not in {column["name"] for column in inspector.get_columns("iceberg_tables")}:
        op.add_column("iceberg_tables", sa.Column("iceberg_type", sa.String(5), nullable=True))
    if not inspector.has_table("iceberg_namespace_properties"):
        op.create_table(
            "iceberg_namespace_properties",
            sa.Column("catalog_name", sa.String(255), nullable=False),
            sa.Column("namespace", sa.String(255), nullable=False),
            sa.Column("property_key", sa.String(255), nullable=False),
            sa.Column("property_value", sa.String(1000), nullable=False),
            sa.PrimaryKeyConstraint(
                "catalog_name", "namespace", "property_key", name=op.f("pk_iceberg_namespace_properties")
            ),
        )


def downgrade() -> None:
    """Take the revision back: Iceberg tables become Hive tables again, and their pointers are deleted.

    If other catalogs have rows in the two SQL tables, these rows and the SQL tables are kept.
    """
    op.drop_table("calve_shared_location")
    connection = op.get_bind()
    for name in ("iceberg_namespace_properties", "iceberg_tables"):
        op.execute(sa.text(f"DELETE FROM {name} WHERE catalog_name = 'calve'"))
        if not connection.scalar(sa.text(f"SELECT count(*) FROM {name}")):
            op.drop_table(name)
    with op.batch_alter_table("calve_table") as table:
        table.drop_column("table_type")
