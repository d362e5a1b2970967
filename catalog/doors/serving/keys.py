"""The file of the clients of the front doors, which `CALVE_DOOR_KEYS` names.

clients:
spark: {role: writer, access_key: SPARK, secret_key: …}
trino: {role: reader, certificate: trino.example}
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from catalog.doors.serving.access import WITHOUT_CREDENTIALS, Access, Client, Key, Role
from catalog.errors import InvalidConfigurationError

KEYS = "CALVE_DOOR_KEYS"
SHORTEST_SECRET = 16
"""The minimum number of characters of a secret key."""

_FIELDS = frozenset({"role", "access_key", "secret_key", "certificate"})
_ACCESS_KEY = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SECRET_KEY = re.compile(rf"[!-~]{{{SHORTEST_SECRET},256}}")
_FORM = "`clients:` with a mapping of names to role, access_key and secret_key, or to role and certificate"


def read_access() -> Access:
    """Return the clients of the file that `CALVE_DOOR_KEYS` names; anonymous access if it is not set.

    Raises:
        InvalidConfigurationError: The file cannot be read, others than its owner can read or change it, or it is
            invalid.
    """
    name = os.environ.get(KEYS)
    return _read(Path(name)) if name else WITHOUT_CREDENTIALS


def _read(path: Path) -> Access:
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = None if mode & 0o077 else yaml.safe_load(file)
    except OSError as error:
        raise InvalidConfigurationError(f"{KEYS}: {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        # Without the parser's message, which may show a secret key.
        raise InvalidConfigurationError(f"{KEYS}: {path} is not YAML; write {_FORM}") from None
    if mode & 0o077:
        raise InvalidConfigurationError(
            f"{KEYS}: other users may read or change {path} (its mode is {mode & 0o777:o}); run: chmod 600 {path}"
        )
    clients = content.get("clients") if isinstance(content, dict) and content.keys() == {"clients"} else None
    if not isinstance(clients, dict) or not clients:
        raise InvalidConfigurationError(f"{KEYS}: {path} needs {_FORM}")
    keys: dict[str, Key] = {}
    certificates: dict[str, Client] = {}
    for client_name, entry in clients.items():
        _read_client(str(client_name), entry, keys, certificates)
    return Access(keys, certificates)


def _read_client(name: str, entry: Any, keys: dict[str, Key], certificates: dict[str, Client]) -> None:
    """Add the credentials of one client."""
    if not isinstance(entry, dict) or not entry.keys() <= _FIELDS:
        raise InvalidConfigurationError(f"{KEYS}: client {name} needs a mapping with {', '.join(sorted(_FIELDS))}")
    client = Client(name, _role(name, entry.get("role")))
    if not {"access_key", "certificate"} & entry.keys():
        raise InvalidConfigurationError(f"{KEYS}: client {name} has neither access_key nor certificate; add one")
    if "access_key" in entry or "secret_key" in entry:
        key = _key(client, entry)
        if key.access_key in keys:
            raise InvalidConfigurationError(f"{KEYS}: two clients have the access_key {key.access_key!r}")
        keys[key.access_key] = key
    if "certificate" in entry:
        common_name = entry["certificate"]
        if not isinstance(common_name, str) or not common_name:
            raise InvalidConfigurationError(f"{KEYS}: certificate of client {name} is not the common name of a subject")
        if common_name in certificates:
            raise InvalidConfigurationError(f"{KEYS}: two clients have the certificate {common_name!r}")
        certificates[common_name] = client


def _role(name: str, value: Any) -> Role:
    roles = {role.name.lower(): role for role in Role}
    if not isinstance(value, str) or value not in roles:
        raise InvalidConfigurationError(f"{KEYS}: role of client {name} is {value!r}, expected {', '.join(roles)}")
    return roles[value]


def _key(client: Client, entry: Mapping[str, Any]) -> Key:
    access_key, secret_key = entry.get("access_key"), entry.get("secret_key")
    if not isinstance(access_key, str) or not _ACCESS_KEY.fullmatch(access_key):
        if "secret_key" in entry:
            raise InvalidConfigurationError(
                f"{KEYS}: access_key of client {client.name} is not up to 128 letters, digits, -, _ or .; its value is "
                "not shown because it may be the secret key: were the two exchanged?"
            )
        raise InvalidConfigurationError(
            f"{KEYS}: access_key of client {client.name} is {access_key!r}, expected up to 128 letters, digits, "
            "-, _ or ."
        )
    if not isinstance(secret_key, str) or not _SECRET_KEY.fullmatch(secret_key):
        raise InvalidConfigurationError(
            f"{KEYS}: secret_key of client {client.name} needs {SHORTEST_SECRET} to 256 printable ASCII characters"
        )
    return Key(access_key, secret_key, client)
