"""Requests about tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from catalog.doors.rest.asking import DONE, Answer, Asking, Page, identifier_of, texts
from catalog.doors.serving.access import Role
from catalog.engine_tables.model import Commit, Loaded, NewTable
from catalog.engine_tables.names import Identifier
from catalog.engine_tables.places import properties_set_by
from catalog.errors import FilesNotDeletedError, InvalidRequestError
from catalog.iceberg.documents.requirements import is_create
from catalog.iceberg.documents.shapes import require_fields
from catalog.iceberg.documents.tables import with_current_snapshots, written
from catalog.settings.places import is_path_property

log = logging.getLogger(__name__)

_ALL, _REFS = "all", "refs"


def list_tables(asking: Asking) -> Answer:
    """Answer listTables."""
    return listed(asking, is_view=False)


def listed(asking: Asking, *, is_view: bool) -> Answer:
    """Answer a request for the names of the tables or views of a namespace."""
    page, namespace = Page.of(asking), asking.namespace
    tables = asking.catalog.iceberg
    names, token = page.cut(tables.names(namespace, is_view=is_view, after=page.after, limit=page.limit))
    levels = list(namespace.levels)
    return Answer(body={"identifiers": [{"namespace": levels, "name": name} for name in names], **token})


def create_table(asking: Asking) -> Answer:
    """Answer createTable, also for a table that a later commit will create."""
    body = asking.body(
        {
            "name": str,
            "location?": str,
            "schema": dict,
            "partition-spec?": dict,
            "write-order?": dict,
            "stage-create?": bool,
            "properties?": dict,
        }
    )
    identifier = Identifier.of(asking.namespace, body["name"])
    new = NewTable(
        body["schema"],
        body.get("location"),
        body.get("partition-spec"),
        body.get("write-order"),
        texts(body.get("properties"), "properties"),
    )
    if body.get("stage-create"):
        return _table(asking.catalog.iceberg.stage(identifier, new))
    return _table(asking.catalog.iceberg.create(identifier, new, asking.also(lambda created: _table(created[0]))))


def load_table(asking: Asking) -> Answer:
    """Answer loadTable; a client that names the tag of what it has gets no body if nothing has changed."""
    snapshots = asking.query.get("snapshots", _ALL)
    if snapshots not in (_ALL, _REFS):
        raise InvalidRequestError(f"snapshots is {snapshots[:100]!r}; write all or refs")
    location = asking.catalog.iceberg.location(asking.identifier)
    known = (tag.strip().removeprefix("W/") for tag in asking.headers.get("if-none-match", "").split(","))
    if _tag(location, snapshots) in known:
        return Answer(304, headers={"ETag": _tag(location, snapshots)})
    return _table(asking.catalog.iceberg.load(asking.identifier), snapshots)


def has_table(asking: Asking) -> Answer:
    """Answer tableExists."""
    asking.catalog.iceberg.location(asking.identifier)
    return DONE


def commit_table(asking: Asking) -> Answer:
    """Answer updateTable: a commit to a table, which may create it."""
    change = _commit(asking.body({}), asking.identifier)
    _require_role(asking, [change])
    return _table(asking.catalog.iceberg.commit([change], asking.also(lambda changed: _table(changed[0])))[0])


def commit_transaction(asking: Asking) -> Answer:
    """Answer commitTransaction: commits to several tables, all or none."""
    changes = [
        _commit(change, identifier_of(require_fields("a change", change, {}).get("identifier"), "an identifier"))
        for change in asking.body({"table-changes": list})["table-changes"]
    ]
    if not changes:
        raise InvalidRequestError("table-changes is empty; name at least one table")
    _require_role(asking, changes)
    asking.catalog.iceberg.commit(changes, asking.also(lambda _changed: DONE))
    return DONE


def register_table(asking: Asking) -> Answer:
    """Answer registerTable."""
    body = asking.body({"name": str, "metadata-location": str, "overwrite?": bool})
    identifier = Identifier.of(asking.namespace, body["name"])
    overwrite = bool(body.get("overwrite"))
    return _table(asking.catalog.iceberg.register(identifier, body["metadata-location"], overwrite=overwrite))


def rename_table(asking: Asking) -> Answer:
    """Answer renameTable."""
    source, target = renaming(asking)
    asking.catalog.iceberg.rename(source, target)
    return DONE


def renaming(asking: Asking) -> tuple[Identifier, Identifier]:
    """Return the old and the new name of a request."""
    body = asking.body({"source": dict, "destination": dict})
    return identifier_of(body["source"], "source"), identifier_of(body["destination"], "destination")


def drop_table(asking: Asking) -> Answer:
    """Answer dropTable."""
    try:
        asking.catalog.iceberg.drop(asking.identifier, purge=asking.flag("purgeRequested"))
    except FilesNotDeletedError as error:
        # The table is gone, as requested; vacuum continues with the files.
        log.warning("%s", error)
    return DONE


def report_metrics(asking: Asking) -> Answer:
    """Answer reportMetrics: accept a report of an engine, which Calve does not use."""
    asking.body({"report-type": str})
    asking.catalog.iceberg.location(asking.identifier)
    return DONE


def _commit(value: object, identifier: Identifier) -> Commit:
    fields = require_fields("the commit", value, {"requirements?": list, "updates?": list})
    for name in ("requirements", "updates"):
        for line in fields.get(name) or ():
            require_fields(f"an entry of {name}", line, {})
    return Commit(identifier, fields.get("requirements") or [], fields.get("updates") or [])


def _require_role(asking: Asking, changes: Sequence[Commit]) -> None:
    """Refuse to create and to move tables for clients that may only write."""
    for change in changes:
        if is_create(change.requirements):
            asking.client.require(Role.OWNER, f"create table {change.identifier}")
        elif _moves(asking, change):
            asking.client.require(Role.OWNER, f"move table {change.identifier} to another folder")
        elif _gives_folders(asking, change):
            asking.client.require(Role.OWNER, f"give table {change.identifier} another folder")


def _moves(asking: Asking, change: Commit) -> bool:
    """Return whether a commit gives a table another location; engines that replace a table name the one that it has."""
    places = {update.get("location") for update in change.updates if update.get("action") == "set-location"}
    return bool(places) and places != {asking.catalog.iceberg.load(change.identifier).document["location"]}


def _gives_folders(asking: Asking, change: Commit) -> bool:
    """Return whether a commit sets a property that names a folder, to another one than the table has."""
    given = [line for update in change.updates for line in properties_set_by(update).items()]
    places = {name: value for name, value in given if is_path_property(name)}
    known = asking.catalog.iceberg.load(change.identifier).document["properties"] if places else {}
    return any(known.get(name) != value for name, value in places.items())


def _table(loaded: Loaded, snapshots: str = _ALL) -> Answer:
    document = with_current_snapshots(loaded.document) if snapshots == _REFS else loaded.document
    body: dict[str, Any] = {"metadata": written(document), "config": {}}
    if loaded.location is not None:
        body = {"metadata-location": loaded.location, **body}
    return Answer(body=body, headers=headers_of(body, snapshots))


def headers_of(body: Mapping[str, Any], snapshots: str = _ALL) -> dict[str, str]:
    """Return the headers of an answer with this body: the tag of a table's metadata."""
    location = body.get("metadata-location")
    return {} if location is None else {"ETag": _tag(location, snapshots)}


def _tag(location: str, snapshots: str) -> str:
    """Return the tag of an answer: metadata files never change."""
    return f'"{sha256(f"{snapshots} {location}".encode()).hexdigest()[:32]}"'
