"""Requests about namespaces."""

from __future__ import annotations

from catalog.doors.rest.asking import DONE, SEPARATOR, Answer, Asking, Page, namespace_of, texts
from catalog.engine_tables.names import Namespace
from catalog.errors import DatabaseNotFoundError, InvalidRequestError


def list_namespaces(asking: Asking) -> Answer:
    """Answer listNamespaces."""
    page, text = Page.of(asking), asking.query.get("parent")
    parent = Namespace.of(text.split(SEPARATOR)) if text else None
    inside = asking.catalog.iceberg.namespaces.inside(parent)
    by_name = {namespace.stored: namespace for namespace in inside}
    names, token = page.cut([name for name in sorted(by_name) if page.after is None or name > page.after])
    return Answer(body={"namespaces": [list(by_name[name].levels) for name in names], **token})


def create_namespace(asking: Asking) -> Answer:
    """Answer createNamespace."""
    body = asking.body({"namespace": list, "properties?": dict})
    namespace = namespace_of(body["namespace"])
    properties = asking.catalog.iceberg.namespaces.create(namespace, texts(body.get("properties"), "properties"))
    return Answer(body={"namespace": list(namespace.levels), "properties": dict(properties)})


def load_namespace(asking: Asking) -> Answer:
    """Answer loadNamespaceMetadata."""
    namespace = asking.namespace
    properties = asking.catalog.iceberg.namespaces.load(namespace)
    return Answer(body={"namespace": list(namespace.levels), "properties": dict(properties)})


def has_namespace(asking: Asking) -> Answer:
    """Answer namespaceExists."""
    namespace = asking.namespace
    if not asking.catalog.iceberg.namespaces.exists(namespace):
        raise DatabaseNotFoundError(f"Namespace does not exist: {namespace}")
    return DONE


def change_namespace(asking: Asking) -> Answer:
    """Answer updateProperties."""
    body = asking.body({"removals?": list, "updates?": dict})
    removals = body.get("removals") or []
    if not all(isinstance(name, str) for name in removals):
        raise InvalidRequestError("removals has a name that is not a string; write names of properties")
    updates = texts(body.get("updates"), "updates")
    changed = asking.catalog.iceberg.namespaces.change(asking.namespace, updates, removals)
    return Answer(
        body={"updated": list(changed.updated), "removed": list(changed.removed), "missing": list(changed.missing)}
    )


def drop_namespace(asking: Asking) -> Answer:
    """Answer dropNamespace."""
    asking.catalog.iceberg.namespaces.drop(asking.namespace)
    return DONE
