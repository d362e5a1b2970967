"""Calls about tables and views."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import (
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    UnknownDBException,
    UnknownTableException,
)

from catalog.doors.entries.forms import COMMENT
from catalog.doors.entries.iceberg import TABLE_TYPE, metadata_of
from catalog.doors.entries.kept import hive_parameters, keep_fields_of_glue, with_hive_comment
from catalog.doors.hms import release_4
from catalog.doors.hms.base import Base, key_names, property_of
from catalog.doors.hms.names import CATALOG, VALID_NAME, matching, parse_database
from catalog.doors.hms.projections import projected_all
from catalog.doors.hms.structures import (
    OWNER_NUMBERS,
    database_of,
    table_from,
    to_fields,
    to_table,
    unqualified,
    with_ddl_time,
)
from catalog.doors.hms.table_filters import matching_tables
from catalog.doors.serving.access import Role
from catalog.errors import DatabaseNotFoundError, EntryModifiedError, TableNotFoundError
from catalog.files.locations import comparable
from catalog.metastores.types import HiveTable
from catalog.model import Table
from catalog.model.identifiers import TableName

# ruff: noqa: D102 - the calls are those of the protocol, and have its names

_TABLES, _VIEW, _EXTERNAL = ("MANAGED_TABLE", "EXTERNAL_TABLE"), "VIRTUAL_VIEW", "EXTERNAL"
_DERIVED = "<derived from deserializer>"
_FIRST_WORD = re.compile(r"\w*")
_TYPES = frozenset(
    [
        "void",
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "char",
        "varchar",
        "date",
        "datetime",
        "timestamp",
        "decimal",
        "binary",
        "interval_year_month",
        "interval_day_time",
        "array",
        "map",
        "struct",
        "uniontype",
        "timestamptz",
    ]
)
"""First words of the types that a metastore takes. Source: `ColumnType.AllTypes` of Hive."""

_DEFINING = re.compile(r"(EXTERNAL|table_type)\Z|spark\.sql\.sources\.")
"""Parameters that define a table, and not only describe it."""

_NO_DATABASE = "the name of the database is null or empty; send one"
_ROOT = re.compile(r"([a-z][a-z0-9+.-]*:)?(//[^/]*)?/*", re.IGNORECASE)
"""The location of a whole file system or bucket."""

_EXPECTED_KEY, _EXPECTED_VALUE = "expected_parameter_key", "expected_parameter_value"


class TableCalls(Base):
    """Definitions of tables and views."""

    # --- names --------------------------------------------------------------------------------------------------

    def get_all_tables(self, database: str | None) -> list[str]:
        return self._table_names(database, None)

    def get_tables(self, database: str | None, pattern: str | None) -> list[str]:
        return self._table_names(database, pattern)

    def get_tables_by_type(self, database: str | None, pattern: str | None, kind: str | None) -> list[str]:
        return self._table_names(database, pattern, kind or None)

    def get_materialized_views_for_rewriting(self, database: str | None) -> list[str]:
        return []

    def get_all_materialized_view_objects_for_rewriting(self) -> list[Any]:
        return []

    def _table_names(self, database: str | None, pattern: str | None, kind: str | None = None) -> list[str]:
        try:
            names = self.entries.table_names(self._database(database), kind=kind)
        except (NoSuchObjectException, DatabaseNotFoundError):
            return []
        return matching(names, pattern)

    def get_table_meta(self, databases: str | None, pattern: str | None, kinds: list[str] | None) -> list[Any]:
        name = parse_database(databases)
        if name.catalog.lower() != CATALOG:
            return []
        metas = []
        for database in matching((database.name for database in self.entries.databases()), name.database):
            found = matching(self.entries.table_names(database), pattern)
            metas += [
                release_4.TableMeta(
                    dbName=database,
                    tableName=table.name.name,
                    tableType=table.table_type,
                    comments=hive_parameters(table).get(COMMENT),
                    catName=CATALOG if self.is_of_release_4 else None,
                    ownerName=table.owner,
                    ownerType=OWNER_NUMBERS.get(table.owner_type or "USER"),
                )
                for table in self.entries.tables(TableName(database, table_name) for table_name in found)
                if not kinds or table.table_type in kinds
            ]
        return metas

    def get_table_names_by_filter(self, database: str | None, text: str | None, limit: int | None) -> list[str]:
        name = parse_database(database)
        if not name.database:
            raise UnknownDBException(_NO_DATABASE)
        if text is None:
            raise InvalidOperationException("the filter is missing; send one")
        try:
            known = self._database(database)
            names = self.entries.table_names(known)
        except NoSuchObjectException as error:
            raise UnknownDBException(error.message) from None
        except DatabaseNotFoundError:
            return []
        given = [TableName(known, table) for table in names]
        found = [table.name for table in matching_tables(given, self.entries.tables, text)]
        return found if limit is None or limit < 0 else found[:limit]

    # --- tables -------------------------------------------------------------------------------------------------

    def get_table(self, database: str | None, name: str | None) -> Any:
        return to_table(self._table(database, name))

    def get_table_req(self, request: Any) -> Any:
        table = to_table(self._table(request.dbName, request.tblName, request.catName))
        return ttypes.GetTableResult(table=table, isStatsCompliant=None)

    def get_table_objects_by_name(self, database: str | None, names: list[str] | None) -> list[Any]:
        return self._objects(database, names, None)

    def get_table_objects_by_name_req(self, request: Any) -> Any:
        if request.tblNames is None and request.tablesPattern is not None:
            self.is_of_release_4 = True
            tables = self._tables_matching(request.dbName, request.tablesPattern, request.catName)
        else:
            tables = self._objects(request.dbName, request.tblNames, request.catName)
        return ttypes.GetTablesResult(tables=projected_all(tables, request.projectionSpec))

    def _tables_matching(self, databases: str | None, pattern: str, catalog: str | None) -> list[Any]:
        """Return the tables that match a pattern, of the databases that match one."""
        known = parse_database(databases)
        if known.database is None:
            raise UnknownDBException(_NO_DATABASE)
        found = []
        if (catalog or known.catalog).lower() == CATALOG:
            found = matching((database.name for database in self.entries.databases()), known.database)
        if not found:
            raise UnknownDBException(f"Could not find database {catalog or known.catalog}.{known.database}")
        names = [
            TableName(database, name)
            for database in found
            for name in matching(self.entries.table_names(database), pattern)
        ]
        return [to_table(table) for table in self.entries.tables(names)]

    def get_tables_ext(self, request: Any) -> list[Any]:
        names = matching(
            self.entries.table_names(self._database(request.database, request.catalog)), request.tableNamePattern
        )
        return [
            ttypes.ExtendedTableInfo(tblName=name)
            for name in names[: None if request.limit in (None, -1) else request.limit]
        ]

    def _objects(self, database: str | None, names: list[str] | None, catalog: str | None) -> list[Any]:
        known = parse_database(database)
        if not known.database:
            raise UnknownDBException(_NO_DATABASE)
        if names is None:
            raise InvalidOperationException(f"{known.database} cannot find null tables; send the names of tables")
        if any(not name for name in names):
            raise MetaException("the name of a table is missing; send one")
        if (catalog or known.catalog).lower() != CATALOG:
            raise UnknownDBException(f"Could not find database {catalog or known.catalog}.{known.database}")
        wanted = []
        for name in names:
            with suppress(NoSuchObjectException):
                wanted.append(self._table_name(database, name, catalog))
        tables = self.entries.tables(wanted)
        if names and not tables and known.database.lower() not in {found.name for found in self.entries.databases()}:
            raise UnknownDBException(f"Could not find database {known.database}")
        return [to_table(table) for table in tables]

    def get_fields(self, database: str | None, name: str | None) -> list[Any]:
        return to_fields(self._described(database, name).columns)

    def get_fields_with_environment_context(self, database: str | None, name: str | None, context: Any) -> list[Any]:
        return self.get_fields(database, name)

    def get_fields_req(self, request: Any) -> Any:
        return ttypes.GetFieldsResponse(
            fields=to_fields(self._described(request.dbName, request.tblName, request.catName).columns)
        )

    def get_schema(self, database: str | None, name: str | None) -> list[Any]:
        table = self._described(database, name)
        return to_fields((*table.columns, *table.partition_keys))

    def get_schema_with_environment_context(self, database: str | None, name: str | None, context: Any) -> list[Any]:
        return self.get_schema(database, name)

    def get_schema_req(self, request: Any) -> Any:
        table = self._described(request.dbName, request.tblName, request.catName)
        return ttypes.GetSchemaResponse(fields=to_fields((*table.columns, *table.partition_keys)))

    def _described(self, database: str | None, name: str | None, catalog: str | None = None) -> HiveTable:
        try:
            return self._table(database, name, catalog)
        except DatabaseNotFoundError as error:
            raise UnknownDBException(str(error)) from None
        except TableNotFoundError as error:
            raise UnknownTableException(str(error)) from None

    # --- changes ------------------------------------------------------------------------------------------------

    def create_table(self, table: Any) -> None:
        self._create_table(table)

    def create_table_with_environment_context(self, table: Any, context: Any) -> None:
        self._create_table(table)

    def create_table_with_constraints(self, table: Any, *constraints: Any) -> None:
        # As a metastore that validates none: engines do not rely on them.
        self._create_table(table)

    def create_table_req(self, request: Any) -> None:
        self.is_of_release_4 = True
        entry = self._given(request.table, "table")
        if entry.sd is not None and entry.sd.location and _ROOT.fullmatch(entry.sd.location):
            raise InvalidObjectException(f"{entry.tableName} location must not be root path")
        self._create_table(entry)

    def translate_table_dryrun(self, request: Any) -> Any:
        return request.table

    def _create_table(self, entry: Any) -> None:
        self._given(entry, "table")
        self._check_table(entry, InvalidObjectException)
        name = database_of(entry)
        if (name.catalog or CATALOG).lower() != CATALOG:
            raise InvalidObjectException(f"there is no catalog {name.catalog!r}; the only one is {CATALOG}")
        table = table_from(entry)
        now = int(time.time())
        table = replace(table, created_at=now, parameters=with_ddl_time(table.parameters, now))
        try:
            self.entries.create_table(_typed(table))
        except DatabaseNotFoundError as error:
            raise InvalidObjectException(str(error)) from None

    def alter_table(self, database: str | None, name: str | None, table: Any) -> None:
        self._alter_table(database, name, table)

    def alter_table_with_cascade(self, database: str | None, name: str | None, table: Any, cascade: bool) -> None:
        self._alter_table(database, name, table, cascade=bool(cascade))

    def alter_table_with_environment_context(
        self, database: str | None, name: str | None, table: Any, context: Any
    ) -> None:
        self._alter_table(database, name, table, context, cascade=property_of(context, "CASCADE") == "true")

    def alter_table_req(self, request: Any) -> Any:
        context = request.environmentContext
        cascade = property_of(context, "CASCADE") == "true"
        self._alter_table(
            request.dbName, request.tableName, request.table, context, cascade=cascade, catalog=request.catName
        )
        return ttypes.AlterTableResponse()

    def _alter_table(
        self,
        database: str | None,
        name: str | None,
        entry: Any,
        context: Any = None,
        *,
        cascade: bool = False,
        catalog: str | None = None,
    ) -> None:
        self._given(entry, "new table")
        try:
            table_name = self._table_name(database, name, catalog)
        except NoSuchObjectException as error:
            raise InvalidOperationException(error.message) from None
        self._check_table(entry, InvalidOperationException, known=table_name.name)
        target = database_of(entry)
        if target.catalog.lower() != CATALOG:
            raise InvalidOperationException("tables cannot be moved between catalogs")
        table = table_from(entry)
        if table.location is None and entry.sd.location is None and table.table_type != _VIEW:
            raise MetaException("the location of the table is missing; send the one that it has")
        before = self.entries.table(table_name)
        if before.table_type != _VIEW and key_names(before) != key_names(table):
            raise InvalidOperationException(
                f"partition keys can not be changed; table {table_name} has {', '.join(key_names(before)) or 'none'}"
            )
        table = replace(
            table,
            location=unqualified(table.location, before.location),
            parameters=with_ddl_time(table.parameters, int(time.time())),
        )
        table = keep_fields_of_glue(with_hive_comment(_typed(table, before), before), before)

        def check(current: Table) -> None:
            if _defined(table) != _defined(self.entries.entry(current)):
                self.client.require(Role.OWNER, f"change the definition of table {table_name}")

        expected = property_of(context, _EXPECTED_KEY)
        value = property_of(context, _EXPECTED_VALUE)
        try:
            self.entries.alter_table(
                table_name,
                table,
                expected=None if expected is None else (expected, value),
                cascade=cascade,
                check=check,
            )
        except EntryModifiedError as error:
            if expected is None:
                raise MetaException(f"The table has been modified. {error}") from None
            found = self.entries.table(table_name).parameters.get(expected)
            # Iceberg's HiveCatalog looks for these words, and tries its commit again.
            raise MetaException(
                f"The table has been modified. The parameter value for key '{expected}' is '{found}'. The expected was "
                f"value was '{value}'"
            ) from None

    def drop_table(self, database: str | None, name: str | None, delete_data: bool) -> None:
        self.entries.drop_table(self._table_name(database, name), delete_data=bool(delete_data))

    def drop_table_with_environment_context(
        self, database: str | None, name: str | None, delete_data: bool, context: Any
    ) -> None:
        self.drop_table(database, name, delete_data)

    def drop_table_req(self, request: Any) -> None:
        self.is_of_release_4 = True
        name = self._table_name(request.dbName, request.tableName, request.catalogName)
        self.entries.drop_table(name, delete_data=bool(request.deleteData))

    def _check_table(self, entry: Any, refused: Callable[..., Exception], known: str | None = None) -> None:
        """Refuse a table that a metastore would refuse.

        Args:
            known: The name that the table has, which clients of other protocols may have chosen.

        Raises:
            Exception: `refused`, with the reason.
            MetaException: A part is missing.
        """
        if entry.tableName is None:
            raise MetaException("the name of the table is missing; send one")
        if entry.dbName is None:
            is_of_release_3 = refused is InvalidObjectException and not self.is_of_release_4
            missing = InvalidObjectException if is_of_release_3 else MetaException
            raise missing("the name of the database is missing; send one")
        if entry.tableName.lower() != known and not VALID_NAME.fullmatch(entry.tableName):
            raise refused(f"{entry.tableName} is not a valid object name")
        if entry.sd is None or entry.sd.cols is None or entry.sd.serdeInfo is None:
            raise MetaException("the table has no storage descriptor, or that has no columns or no SerDe; send them")
        for field in (*(entry.sd.cols or ()), *(entry.partitionKeys or ())):
            if field.name is None or not field.type:
                raise MetaException(f"column {field.name!r} has no name or no type; send both")
            if field.type != _DERIVED and _FIRST_WORD.findall(field.type)[0] not in _TYPES:
                raise refused(f"Invalid column type: {field.type}")


def _defined(table: HiveTable) -> tuple[Any, ...]:
    """Return what only an owner may change of a table, in a form that can be compared.

    Engines alter a table to commit to it, and to write statistics into its parameters. Of an Iceberg table, nothing but
    the name and the metadata file is taken from what a client sends; the location allows the metadata to have it.
    """
    parameters = {name: value for name, value in table.parameters.items() if _DEFINING.match(name)}
    if metadata_of(table) is not None:
        return table.name, parameters[TABLE_TYPE].upper(), comparable(table.location or "")
    storage = table.storage
    # Without columns, clients write the number of buckets in several ways.
    buckets = storage.bucket_columns and (storage.bucket_columns, storage.bucket_count, storage.sort_columns)
    return (
        table.name,
        table.owner or "",
        table.table_type,
        table.columns,
        table.partition_keys,
        table.location,
        (storage.input_format, storage.output_format, storage.serde, dict(storage.serde_parameters)),
        buckets,
        (table.view_text, table.original_view_text),
        parameters,
    )


def _typed(table: HiveTable, before: HiveTable | None = None) -> HiveTable:
    """Return a table with the type that a metastore derives from its parameters.

    Args:
        before: The table before a change, which keeps its type if the client changes neither the type nor the
            parameter: external tables of Glue need not have the parameter.
    """
    if before is not None and _kind(table) == _kind(before):
        return table
    is_external = table.parameters.get(_EXTERNAL, "").upper() == "TRUE"
    if table.table_type in _TABLES or table.table_type is None:
        kind = "EXTERNAL_TABLE" if is_external else "MANAGED_TABLE"
        if table.table_type is None and table.original_view_text is not None:
            kind = _VIEW
        return replace(table, table_type=kind)
    return table


def _kind(table: HiveTable) -> tuple[str | None, str | None]:
    return table.table_type, table.parameters.get(_EXTERNAL)
