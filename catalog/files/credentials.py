"""Detection of credentials in addresses, which every log, page and journal would show.

The rule is strict and does not search for strings that look like secrets. An address may only have what its scheme
needs: a bucket, a container of an account, or a host with its port; and options known to carry no secret.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

HARMLESS_OPTIONS = frozenset(
    """
    allow_bucket_creation allow_bucket_deletion allow_delayed_open blob_storage_authority dfs_storage_authority
    enable_tls endpoint_override project_id region replication retry_limit_seconds scheme version versionid
    """.split()  # noqa: SIM905 - a list of words is easier to read
)
"""Options of a location that carry no secret. Source: PyArrow's URIs of file systems."""

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*):[/\\]*([^/\\?#;]*)(.*)", re.IGNORECASE | re.DOTALL)
_HOST = r"(\[[0-9a-f:.]+\]|[^@:]*)(?P<port>:[0-9]{1,5})?"
_AUTHORITY = re.compile(_HOST, re.IGNORECASE)
_ACCOUNT = re.compile(f"([^@:]+@)?{_HOST}", re.IGNORECASE)
_OF_ACCOUNTS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes whose authority is `container@account`."""
CLUSTER_SCHEMES = frozenset({"hdfs", "viewfs", "webhdfs", "swebhdfs"})
"""Schemes of Hadoop's clusters, which have no passwords: after their port, `@` is a character of the path."""
_MOST_ESCAPES = 8


def has_credentials(address: str) -> bool:
    """Return whether an address has, or may have, credentials; a local path never has."""
    match = _ADDRESS.match(decoded(address).strip())
    if match is None or (scheme := match[1].lower()) == "file":
        return False
    # The format of JDBC addresses depends on the database.
    return scheme == "jdbc" or _is_odd_authority(scheme, match[2], match[3]) or _has_odd_option(match[3])


def without_credentials(address: str) -> str:
    """Return an address for messages; only the scheme, if it has, or may have, credentials."""
    if not has_credentials(address):
        return address
    scheme, mark, _ = address.strip().partition("://")
    return f"{scheme}://***" if mark and scheme.isalnum() else "***"


def decoded(text: str) -> str:
    """Return a string without percent-encoding, which may be nested."""
    for _ in range(_MOST_ESCAPES):
        unescaped = unquote(text, errors="surrogateescape") if "%" in text else text
        if unescaped == text:
            break
        text = unescaped
    return text


def _is_odd_authority(scheme: str, authority: str, rest: str) -> bool:
    match = (_ACCOUNT if scheme in _OF_ACCOUNTS else _AUTHORITY).fullmatch(authority)
    if match is None:
        return True
    # A secret may start like a port and contain slashes: s3a://KEY:12/34@bucket.
    return match["port"] is not None and "@" in rest and scheme not in CLUSTER_SCHEMES


def _has_odd_option(rest: str) -> bool:
    # `?` is also a wildcard: only a name without a slash after it is an option.
    for part in re.split(r"[?#;&]", rest)[1:]:
        name, equals, value = part.partition("=")
        if equals and "/" not in name and (name.strip().lower() not in HARMLESS_OPTIONS or "@" in value):
            return True
    return False
