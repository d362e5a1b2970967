"""Settings among the properties of tables are checked when they are set."""

from __future__ import annotations

import pytest

from catalog import Catalog
from catalog.errors import InvalidTableError
from catalog.rebalancing.planning import DEFAULT_FILE_BYTES, target_file_bytes
from catalog.statements.session import Session
from catalog.tables.own_properties import NEW_PARTITIONS_PROPERTY, TARGET_PROPERTY, read_setting

WRONG = [
    (TARGET_PROPERTY, "abc", "expected a number of bytes above 0"),
    (TARGET_PROPERTY, "0", "expected a number of bytes above 0"),
    (TARGET_PROPERTY, "-1", "expected a number of bytes above 0"),
    (TARGET_PROPERTY, "", "expected a number of bytes above 0"),
    (NEW_PARTITIONS_PROPERTY, "1.5", "expected a whole number"),
    (NEW_PARTITIONS_PROPERTY, "٣", "expected a whole number"),
]


@pytest.mark.parametrize(("name", "value", "said"), WRONG)
def test_a_wrong_value_is_refused_when_it_is_set(catalog: Catalog, name: str, value: str, said: str) -> None:
    with pytest.raises(InvalidTableError, match=f"property {name} is .*, {said}"):
        catalog.create_table("demo.t", columns=[("id", "int")], properties={name: value})
    catalog.create_table("demo.t", columns=[("id", "int")])
    with Session(catalog) as session, pytest.raises(InvalidTableError, match=said):
        session.execute(f"ALTER TABLE demo.t SET TBLPROPERTIES ('{name}'='{value}')")
    assert name not in catalog.get_table("demo.t").properties


def test_a_value_that_came_past_the_checks_is_refused_when_it_is_read() -> None:
    with pytest.raises(InvalidTableError, match="'abc'"):
        read_setting({TARGET_PROPERTY: "abc"}, TARGET_PROPERTY, 1)


def test_a_setting_has_a_default_and_can_be_removed(catalog: Catalog) -> None:
    catalog.create_table("demo.t", columns=[("id", "int")], properties={TARGET_PROPERTY: "007"})
    assert target_file_bytes(catalog.get_table("demo.t")) == 7
    catalog.alter_table("demo.t", properties={TARGET_PROPERTY: None})
    assert target_file_bytes(catalog.get_table("demo.t")) == DEFAULT_FILE_BYTES
