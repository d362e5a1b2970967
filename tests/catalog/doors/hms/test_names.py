"""Names of databases and tables that a metastore takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hive_metastore import ttypes

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.model.identifiers import TableName
from tests.support.entries import ORDERS
from tests.support.hms_door import table


def test_names_may_have_dashes(client: Any) -> None:
    client.create_database(ttypes.Database(name="my-lake"))
    client.create_table(table("my-lake", "my-orders"))
    renamed = client.get_table("my-lake", "my-orders")
    renamed.tableName = "other-orders"
    client.alter_table("my-lake", "my-orders", renamed)
    assert client.get_all_tables("my-lake") == ["other-orders"]
    with pytest.raises(ttypes.InvalidObjectException, match="not a valid"):
        client.create_database(ttypes.Database(name="my;lake"))
    with pytest.raises(ttypes.InvalidObjectException, match="not a valid"):
        client.create_table(table("my-lake", "my;orders"))


def test_a_table_with_a_name_of_another_protocol_can_be_changed(client: Any, catalog: Catalog) -> None:
    Entries(catalog).create_table(replace(ORDERS, name=TableName("demo", "ordres payés")))
    given = client.get_table("demo", "ordres payés")
    given.parameters["a"] = "b"
    client.alter_table("demo", "ordres payés", given)
    assert client.get_table("demo", "ordres payés").parameters["a"] == "b"
    given.tableName = "ordres dûs"
    with pytest.raises(ttypes.InvalidOperationException, match="not a valid"):
        client.alter_table("demo", "ordres payés", given)


def test_nothing_has_a_name_that_is_not_allowed(client: Any) -> None:
    for call in (lambda: client.get_database("db.ns"), lambda: client.drop_database("db.ns", True, False)):
        with pytest.raises(ttypes.NoSuchObjectException):
            call()
    for call in (lambda: client.get_table("demo", "a.b"), lambda: client.drop_table("demo", "a/b", True)):
        with pytest.raises(ttypes.NoSuchObjectException):
            call()
    client.create_table(table("demo", "orders"))
    assert [found.tableName for found in client.get_table_objects_by_name("demo", ["a.b", "orders"])] == ["orders"]
    assert client.get_table_objects_by_name("demo", ["a.b"]) == []
    with pytest.raises(ttypes.UnknownDBException):
        client.get_table_objects_by_name_req(ttypes.GetTablesRequest(dbName="db.ns", tblNames=["orders"]))


def test_the_warehouse_is_a_setting_that_clients_can_read(client: Any) -> None:
    warehouse = client.get_config_value("hive.metastore.warehouse.dir", "")
    client.create_database(ttypes.Database(name="lake", ownerName="ann"))
    made = client.get_database("lake")
    assert made.locationUri == f"{warehouse}/lake.db"
    assert client.get_catalog(ttypes.GetCatalogRequest("hive")).catalog.locationUri == warehouse
    # As Hive, for which an owner of no type is a user.
    assert made.ownerType == ttypes.PrincipalType.USER
