"""Requests about views."""

from __future__ import annotations

from catalog.doors.rest.asking import DONE, Answer, Asking, texts
from catalog.doors.rest.tables import listed, renaming
from catalog.engine_tables.model import Commit, Loaded
from catalog.engine_tables.names import Identifier
from catalog.iceberg.documents.shapes import require_fields


def list_views(asking: Asking) -> Answer:
    """Answer listViews."""
    return listed(asking, is_view=True)


def create_view(asking: Asking) -> Answer:
    """Answer createView."""
    body = asking.body({"name": str, "location?": str, "schema": dict, "view-version": dict, "properties?": dict})
    created = asking.catalog.iceberg.create_view(
        Identifier.of(asking.namespace, body["name"]),
        body["schema"],
        body["view-version"],
        body.get("location"),
        texts(body.get("properties"), "properties"),
        asking.also(lambda views: _view(views[0])),
    )
    return _view(created)


def load_view(asking: Asking) -> Answer:
    """Answer loadView."""
    return _view(asking.catalog.iceberg.load(asking.identifier, is_view=True))


def has_view(asking: Asking) -> Answer:
    """Answer viewExists."""
    asking.catalog.iceberg.location(asking.identifier, is_view=True)
    return DONE


def replace_view(asking: Asking) -> Answer:
    """Answer replaceView: a commit to a view."""
    body = asking.body({"requirements?": list, "updates": list})
    for name in ("requirements", "updates"):
        for line in body.get(name) or ():
            require_fields(f"an entry of {name}", line, {})
    change = Commit(asking.identifier, body.get("requirements") or [], body["updates"])
    also = asking.also(lambda views: _view(views[0]))
    return _view(asking.catalog.iceberg.commit([change], also, is_view=True)[0])


def register_view(asking: Asking) -> Answer:
    """Answer registerView."""
    body = asking.body({"name": str, "metadata-location": str})
    identifier = Identifier.of(asking.namespace, body["name"])
    return _view(asking.catalog.iceberg.register(identifier, body["metadata-location"], is_view=True))


def rename_view(asking: Asking) -> Answer:
    """Answer renameView."""
    source, target = renaming(asking)
    asking.catalog.iceberg.rename(source, target, is_view=True)
    return DONE


def drop_view(asking: Asking) -> Answer:
    """Answer dropView."""
    asking.catalog.iceberg.drop(asking.identifier, is_view=True)
    return DONE


def _view(loaded: Loaded) -> Answer:
    return Answer(body={"metadata-location": loaded.location, "metadata": loaded.document, "config": {}})
