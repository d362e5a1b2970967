"""Functions through boto3."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from catalog.doors.entries import Entries
from catalog.metastores.types import HiveFunction
from tests.support.glue_door import GlueDoor

DEMO = {"DatabaseName": "demo"}
FUNCTION = {
    "FunctionName": "half",
    "ClassName": "com.example.Half",
    "OwnerName": "ann",
    "OwnerType": "GROUP",
    "FunctionType": "REGULAR_FUNCTION",
    "ResourceUris": [{"ResourceType": "JAR", "Uri": "s3://lake/half.jar"}],
}


def test_functions_come_back_as_they_went_in(glue: Any) -> None:
    given: dict[str, Any]
    for given in (FUNCTION, {"FunctionName": "a.b"}, {"FunctionName": "c", "ResourceUris": [{"Uri": "s3://lake/c"}]}):
        glue.create_user_defined_function(**DEMO, FunctionInput=given)
        found = glue.get_user_defined_function(**DEMO, FunctionName=given["FunctionName"])["UserDefinedFunction"]
        assert found.items() >= given.items()
        assert found["DatabaseName"] == "demo"
    glue.update_user_defined_function(**DEMO, FunctionName="half", FunctionInput={**FUNCTION, "ClassName": "Half"})
    changed = glue.get_user_defined_function(**DEMO, FunctionName="half")["UserDefinedFunction"]
    assert changed["ClassName"] == "Half"
    pages = glue.get_paginator("get_user_defined_functions").paginate(Pattern="*", PaginationConfig={"PageSize": 2})
    assert [f["FunctionName"] for page in pages for f in page["UserDefinedFunctions"]] == ["a.b", "c", "half"]
    assert len(glue.get_user_defined_functions(**DEMO, Pattern="h.*")["UserDefinedFunctions"]) == 1
    regular = glue.get_user_defined_functions(Pattern="*", FunctionType="REGULAR_FUNCTION")["UserDefinedFunctions"]
    assert [function["FunctionName"] for function in regular] == ["half"]
    glue.delete_user_defined_function(**DEMO, FunctionName="half")
    for call in (glue.get_user_defined_function, glue.delete_user_defined_function):
        with pytest.raises(ClientError, match="EntityNotFoundException"):
            call(**DEMO, FunctionName="half")
    with pytest.raises(ClientError, match="AlreadyExistsException"):
        glue.create_user_defined_function(**DEMO, FunctionInput={"FunctionName": "C"})


def test_functions_of_other_protocols_are_those_of_glue(glue: Any, door: GlueDoor) -> None:
    entries = Entries(door.catalog)
    entries.create_function(
        HiveFunction(database="demo", name="half", class_name="Half", kind="JAVA", resources=(("JAR", "s3://lake/x"),))
    )
    found = glue.get_user_defined_function(**DEMO, FunctionName="half")["UserDefinedFunction"]
    assert found["ResourceUris"] == [{"ResourceType": "JAR", "Uri": "s3://lake/x"}]
