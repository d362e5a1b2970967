"""Calls about functions: they are stored and listed."""

from __future__ import annotations

import re
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import InvalidObjectException, MetaException, NoSuchObjectException
from thrift.Thrift import TApplicationException

from catalog.doors.hms import release_4
from catalog.doors.hms.base import Base
from catalog.doors.hms.exceptions import MissingArgumentException
from catalog.doors.hms.names import CATALOG, matching
from catalog.doors.hms.structures import OWNER_NUMBERS, OWNER_TYPES
from catalog.errors import AlreadyExistsError, DatabaseNotFoundError, NotFoundError
from catalog.metastores.types import HiveFunction

# ruff: noqa: D102 - the calls are those of the protocol, and have its names

_NAME = re.compile(r"\w+", re.ASCII)
_KINDS = {ttypes.FunctionType.JAVA: "JAVA"}
_KIND_NUMBERS = {name: number for number, name in _KINDS.items()}
_RESOURCES = {
    ttypes.ResourceType.JAR: "JAR",
    ttypes.ResourceType.FILE: "FILE",
    ttypes.ResourceType.ARCHIVE: "ARCHIVE",
}
_RESOURCE_NUMBERS = {name: number for number, name in _RESOURCES.items()}


class FunctionCalls(Base):
    """Registration of functions."""

    def create_function(self, function: Any) -> None:
        _check_function(function)
        if function.dbName is None:
            error = MetaException if self.is_of_release_4 else NoSuchObjectException
            raise error("the name of the database is missing; send one")
        self.entries.create_function(_function_from(function, self._database(function.dbName, function.catName)))

    def alter_function(self, database: str | None, name: str | None, function: Any) -> None:
        known, name = self._database(database), self._given(name, "name of the function")
        try:
            _check_function(function)
            target = self._database(function.dbName, function.catName)
        except InvalidObjectException as error:
            raise self._undeclared(error.message) from None
        try:
            self.entries.function(known, name)
        except NotFoundError as error:
            raise MetaException(str(error)) from None
        try:
            self.entries.alter_function(known, name, _function_from(function, target))
        except DatabaseNotFoundError as error:
            raise self._undeclared(str(error)) from None
        except AlreadyExistsError as error:
            raise MetaException(str(error)) from None

    def _undeclared(self, message: str) -> Any:
        """Return the exception for a reason that the protocol does not declare; release 4 wraps it."""
        if self.is_of_release_4:
            return MetaException(message)
        return TApplicationException(TApplicationException.INTERNAL_ERROR, message)

    def drop_function(self, database: str | None, name: str | None) -> None:
        self.entries.drop_function(self._database(database), self._given(name, "name of the function"))

    def get_function(self, database: str | None, name: str | None) -> Any:
        return _to_function(self.entries.function(self._database(database), self._given(name, "name of the function")))

    def get_functions(self, database: str | None, pattern: str | None) -> list[str]:
        try:
            functions = self.entries.functions(self._database(database))
        except (NoSuchObjectException, DatabaseNotFoundError):
            return []
        return matching((function.name for function in functions), pattern)

    def get_functions_req(self, request: Any) -> Any:
        self.is_of_release_4 = True
        try:
            functions = self.entries.functions(self._database(request.dbName, request.catalogName))
        except (NoSuchObjectException, DatabaseNotFoundError):
            functions = []
        known = {function.name: function for function in functions}
        names = matching(known, request.pattern)
        if request.returnNames:
            return release_4.GetFunctionsResponse(function_names=names)
        return release_4.GetFunctionsResponse(functions=[_to_function(known[name]) for name in names])

    def get_all_functions(self) -> Any:
        return ttypes.GetAllFunctionsResponse(functions=[_to_function(found) for found in self.entries.functions()])


def _function_from(function: Any, database: str) -> HiveFunction:
    return HiveFunction(
        database=database,
        name=function.functionName.lower(),
        class_name=function.className,
        owner=function.ownerName,
        owner_type=OWNER_TYPES.get(function.ownerType),
        kind=_KINDS.get(function.functionType),
        resources=tuple(
            (_RESOURCES[resource.resourceType], resource.uri)
            for resource in function.resourceUris or ()
            if resource.resourceType in _RESOURCES
        ),
    )


def _to_function(function: HiveFunction) -> Any:
    return ttypes.Function(
        functionName=function.name,
        dbName=function.database,
        className=function.class_name,
        ownerName=function.owner,
        ownerType=OWNER_NUMBERS.get(function.owner_type or ""),
        createTime=function.created_at,
        functionType=_KIND_NUMBERS.get(function.kind or ""),
        resourceUris=[
            ttypes.ResourceUri(resourceType=_RESOURCE_NUMBERS.get(kind), uri=uri) for kind, uri in function.resources
        ],
        catName=CATALOG,
    )


def _check_function(function: Any) -> None:
    for value, what in (
        (function, "function"),
        (function and function.functionName, "name of the function"),
        (function and function.ownerType, "type of the function's owner"),
        (function and function.functionType, "type of the function"),
    ):
        if value is None:
            raise MissingArgumentException(what)
    if not _NAME.fullmatch(function.functionName):
        raise InvalidObjectException(f"{function.functionName} is not a valid object name")
    if not function.className:
        raise InvalidObjectException(f"function {function.functionName} has no class; send its name")
