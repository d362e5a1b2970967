"""Catalog URLs, and the removal of secrets from them."""

from __future__ import annotations

import os

from sqlalchemy import URL

SECRETS = ("password", "sslpassword", "passfile", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Query parameters that are secrets, or refer to one, for libpq."""

_SHOWN = frozenset(
    """
    application_name cache client_encoding connect_timeout dbname host hostaddr keepalives keepalives_count
    keepalives_idle keepalives_interval load_balance_hosts mode port sslmode target_session_attrs tcp_user_timeout user
    """.split()  # noqa: SIM905 - a list of words is easier to read
)
"""Parameters that messages may show; others may be a password under a name that libpq rejects."""


def has_half_a_password(text: str, url: URL) -> bool:
    """Return whether a URL has a second `@`, as an unescaped one in a password would leave.

    Args:
        text: The URL as given.
        url: The parsed URL, which lacks options without a value.
    """
    query = text.partition("@")[2].partition("?")[2]
    options = (option.partition("=")[0] for option in query.split("&"))
    return any("@" in part for part in (url.host or "", url.database or "", *options))


def shown_url(url: URL) -> str:
    """Return a URL for messages, with asterisks for passwords and for parameters that may be one."""
    masked = {name: "***" for name in url.query if name not in _SHOWN}
    return url.update_query_dict(masked).render_as_string(hide_password=True)


def url_without_secrets(url: URL) -> URL:
    """Return a URL without passwords."""
    # `URL.set` treats None as no change.
    return url._replace(password=None).difference_update_query(SECRETS)


def password_of(url: URL) -> str | None:
    """Return the password for a URL: as in libpq, that of its query, of its user, or of the variable PGPASSWORD."""
    password = url.query.get("password", url.password)
    if password is None:
        return os.environ.get("PGPASSWORD") if url.get_backend_name() == "postgresql" else None
    return password if isinstance(password, str) else password[-1]
