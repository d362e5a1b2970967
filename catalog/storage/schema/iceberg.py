"""The SQL tables of Iceberg's SQL catalog, and of the locations that its tables share."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Index, LargeBinary

from catalog.storage.declarations import Mapped, mapped_column
from catalog.storage.schema.base import Base
from catalog.storage.texts import String, Text


class IcebergTableRow(Base):
    """The metadata location of an Iceberg table: a row of PyIceberg's SqlCatalog and of Iceberg's JDBC catalog.

    Both update it when they commit. Source: PyIceberg 0.12, `pyiceberg/catalog/sql.py`.
    """

    __tablename__ = "iceberg_tables"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    metadata_location: Mapped[str | None] = mapped_column(String(1000))
    previous_metadata_location: Mapped[str | None] = mapped_column(String(1000))
    iceberg_type: Mapped[str | None] = mapped_column(String(5))


class IcebergNamespaceRow(Base):
    """A property of a namespace of Iceberg tables; Calve's own databases have none here."""

    __tablename__ = "iceberg_namespace_properties"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_key: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_value: Mapped[str] = mapped_column(String(1000))


class SharedLocationRow(Base):
    """A location where an Iceberg table has data files that also belong to another table.

    `location` is normalized by `catalog.files.locations.comparable`. It is valid only while the Iceberg table exists.
    """

    __tablename__ = "calve_shared_location"

    location: Mapped[str] = mapped_column(String(1000), primary_key=True)
    table_namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_name: Mapped[str] = mapped_column(String(255), primary_key=True)


class IcebergFolderRow(Base):
    """A folder of an Iceberg table outside of that with its folder of metadata (`catalog.iceberg.own_folders`).

    `location_key` is as in `TableRow`. Triggers keep the names those of the table's pointer.
    """

    __tablename__ = "calve_iceberg_folder"
    __table_args__ = (Index("ix_calve_iceberg_folder_location_key", "location_key"),)

    table_namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    location_key: Mapped[bytes] = mapped_column(LargeBinary)
    location: Mapped[str] = mapped_column(Text)


class IcebergPlacesRow(Base):
    """The folders outside of an Iceberg table's own one in which it has files (`catalog.iceberg.file_places`).

    They are those as of `metadata_location`, and perhaps earlier ones; `snapshot_ids` are those of the snapshots that
    were read to find them.
    """

    __tablename__ = "calve_iceberg_places"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    metadata_location: Mapped[str] = mapped_column(String(1000))
    snapshot_ids: Mapped[list[Any]]
    folders: Mapped[list[Any]]
