"""Iceberg's OpenAPI document, with the requests that the server offers, and the names of what it serves."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.fuzz.served import ACCESS_KEY, SECRET_KEY, Served

COMMIT = "7f879b11366e17a676a03f15247a821751415529"
"""The version of the document in Iceberg's repository; it is too large to be copied into this one."""

DIGEST = "9a160d49002a14e559ab4dcb5be9953b8880ca1544cf9773f05b1a720c3b35b7"
ADDRESS = f"https://raw.githubusercontent.com/apache/iceberg/{COMMIT}/open-api/rest-catalog-open-api.yaml"

_PREFIX = "#/components/parameters/prefix"
_METHODS = ("get", "head", "post", "delete")
_LISTS = (
    *(("CommitTransactionRequest", "table-changes"), ("CommitTableRequest", "updates")),
    *(("CommitTableRequest", "requirements"), ("CommitViewRequest", "updates")),
)
_KNOWN = {"namespace": ["demo", "empty", "a\x1fb"], "table": ["t", "u", "orders"], "view": ["v", "t"]}


def document(served: Served, folder: Path) -> dict[str, Any]:
    """Return the document.

    Args:
        folder: Where the original is kept.
    """
    specification = yaml.load(_original(folder), Loader=yaml.CSafeLoader)
    offered = _get(served, "/v1/config")["endpoints"]
    paths = {}
    for path, item in specification["paths"].items():
        kept = {name: value for name, value in item.items() if name not in _METHODS or _is_offered(name, path, offered)}
        if any(name in _METHODS for name in kept):
            # Not a parameter: all requests with another prefix are unknown.
            kept["parameters"] = [given for given in kept.get("parameters", []) if given.get("$ref") != _PREFIX]
            paths[path.replace("{prefix}", "calve")] = kept
    specification["paths"] = paths
    del specification["servers"]
    _name_what_is_there(specification["components"], served)
    return _with_error_bodies(specification)


def _with_error_bodies(value: Any) -> Any:
    """Return a document in which all errors have the same form; the original forgets the object around some of them."""
    if isinstance(value, dict):
        if value.get("schema") == {"$ref": "#/components/schemas/ErrorModel"}:
            return {**value, "schema": {"$ref": "#/components/schemas/IcebergErrorResponse"}}
        return {name: _with_error_bodies(inner) for name, inner in value.items()}
    return [_with_error_bodies(inner) for inner in value] if isinstance(value, list) else value


def _original(folder: Path) -> bytes:
    """Return the document; from `ICEBERG_OPENAPI`, if that names a file, or from Iceberg's repository."""
    path = Path(os.environ.get("ICEBERG_OPENAPI") or folder / "rest-catalog-open-api.yaml")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with urllib.request.urlopen(ADDRESS, timeout=60) as response:
                path.write_bytes(response.read())
        except OSError as error:
            raise SystemExit(f"{ADDRESS} cannot be read: {error}; set ICEBERG_OPENAPI to a copy of it") from None
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != DIGEST:
        raise SystemExit(f"{path} is not the version of {ADDRESS}; delete it, or correct ICEBERG_OPENAPI")
    return content


def _is_offered(method: str, path: str, offered: list[str]) -> bool:
    return "{prefix}" not in path or f"{method.upper()} {path}" in offered


def _name_what_is_there(components: dict[str, Any], served: Served) -> None:
    """Have about half of the names and locations be those that the catalog has, or soon will."""
    parameters, schemas = components["parameters"], components["schemas"]
    for name, known in _KNOWN.items():
        parameters[name]["schema"] = _often(known)
        # Of other catalogs.
        parameters[name].pop("examples", None)
        parameters[name].pop("example", None)
    schemas["Namespace"] = _often([["demo"], ["empty"], ["a", "b"], ["made"]], {"type": "array", "items": _TEXT})
    names = _often([*_KNOWN["table"], *_KNOWN["view"]])
    for schema in ("TableIdentifier", "CreateTableRequest", "CreateViewRequest", "RegisterTableRequest"):
        schemas[schema]["properties"]["name"] = names
    folders = [str(served.warehouse / "demo" / name) for name in ("t", "u", "orders", "t/../u")]
    for schema in ("CreateTableRequest", "CreateViewRequest", "SetLocationUpdate"):
        schemas[schema]["properties"]["location"] = _often(folders)
    # Longer ones take seconds to make.
    for schema, name in _LISTS:
        schemas[schema]["properties"][name]["maxItems"] = 2
    primitives = ["boolean", "int", "long", "string", "date", "timestamp", "decimal(9,2)", "fixed[4]", "uuid", "binary"]
    schemas["PrimitiveType"] = _often(primitives)


_TEXT = {"type": "string"}


def _often(known: list[Any], otherwise: dict[str, Any] = _TEXT) -> dict[str, Any]:
    return {"anyOf": [{"enum": known}, otherwise]}


def token(served: Served) -> str:
    """Return a token of the owner."""
    form = f"grant_type=client_credentials&client_id={ACCESS_KEY}&client_secret={SECRET_KEY}"
    request = urllib.request.Request(f"http://{served.server.address('rest')}/v1/oauth/tokens", form.encode())
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(json.load(response)["access_token"])


def _get(served: Served, path: str) -> Any:
    address = f"http://{served.server.address('rest')}{path}"
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token(served)}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)
