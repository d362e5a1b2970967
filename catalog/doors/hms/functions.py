"""Calls about functions: they are stored and listed."""

from __future__ import annotations

import re
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import InvalidObjectException, MetaException, NoSuchObjectException
from thrift.Thrift import TApplicationException

from catalog.doors.hms.base import Base
from catalog.doors.hms.exceptions import MissingArgumentException
from catalog.doors.hms.names import CATALOG, matching
from catalog.errors import AlreadyExistsError, DatabaseNotFoundError, FunctionNotFoundError, NotFoundError
from catalog.tables.functions import Function

# ruff: noqa: D102 - the calls are those of the protocol, and have its names

_NAME = re.compile(r"\w+", re.ASCII)


class FunctionCalls(Base):
    """Registration of functions."""

    def create_function(self, function: Any) -> None:
        _check_function(function)
        if function.dbName is None:
            raise NoSuchObjectException("the name of the database is missing; send one")
        database = self._database(function.dbName, function.catName)
        self.catalog.functions.create(database, function.functionName, self._details(function))

    def alter_function(self, database: str | None, name: str | None, function: Any) -> None:
        known, name = self._database(database), self._given(name, "name of the function")
        try:
            _check_function(function)
            target = self._database(function.dbName, function.catName)
            self.catalog.functions.get(known, name)
            self.entries.database(target)
        except FunctionNotFoundError as error:
            raise MetaException(str(error)) from None
        except (InvalidObjectException, DatabaseNotFoundError) as error:
            raise self._undeclared(getattr(error, "message", None) or str(error)) from None
        try:
            self.catalog.functions.alter(known, name, target, function.functionName, self._details(function))
        except (NotFoundError, AlreadyExistsError) as error:
            raise MetaException(str(error)) from None

    def _undeclared(self, message: str) -> Exception:
        """Return the exception for a reason that the protocol does not declare; release 4 wraps it."""
        if self.is_of_release_4:
            return MetaException(message)
        return TApplicationException(TApplicationException.INTERNAL_ERROR, message)

    def drop_function(self, database: str | None, name: str | None) -> None:
        self.catalog.functions.drop(self._database(database), self._given(name, "name of the function"))

    def get_function(self, database: str | None, name: str | None) -> Any:
        return _written(self.catalog.functions.get(self._database(database), self._given(name, "name of the function")))

    def get_functions(self, database: str | None, pattern: str | None) -> list[str]:
        try:
            known = self._database(database)
        except NoSuchObjectException:
            return []
        return matching((function.name for function in self.catalog.functions.all(known)), pattern)

    def get_all_functions(self) -> Any:
        return ttypes.GetAllFunctionsResponse(functions=[_written(found) for found in self.catalog.functions.all()])

    def _details(self, function: Any) -> dict[str, Any]:
        return {
            "class": function.className,
            "owner": function.ownerName,
            "owner_type": function.ownerType,
            "type": function.functionType,
            "resources": None
            if function.resourceUris is None
            else [[resource.resourceType, resource.uri] for resource in function.resourceUris],
        }


def _written(function: Function) -> Any:
    details = function.details
    resources = details.get("resources")
    return ttypes.Function(
        functionName=function.name,
        dbName=function.database,
        className=details.get("class"),
        ownerName=details.get("owner"),
        ownerType=details.get("owner_type"),
        createTime=function.created_at_ms // 1000,
        functionType=details.get("type"),
        resourceUris=[ttypes.ResourceUri(resourceType=kind, uri=uri) for kind, uri in resources or ()],
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
