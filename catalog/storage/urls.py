"""URLs of catalogs without the secrets that they carry."""

from __future__ import annotations

from sqlalchemy import URL

SECRETS = ("password", "sslpassword", "passfile", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Parameters of a URL's query that are secrets, or lead to one; libpq takes them as it takes the user's password."""

_SHOWN = frozenset(
    """
    application_name cache client_encoding connect_timeout dbname host hostaddr keepalives keepalives_count
    keepalives_idle keepalives_interval load_balance_hosts mode port sslmode target_session_attrs tcp_user_timeout user
    """.split()  # noqa: SIM905 - one word after the other reads better
)
"""Parameters that messages may show; a password under a name that libpq does not know would be refused in one."""


def has_half_a_password(text: str, url: URL) -> bool:
    """Return whether a URL has an `@` where a password that was not escaped would leave one: after the first.

    Args:
        text: As it is given.
        url: As it is read, without the options that have no value.
    """
    query = text.partition("@")[2].partition("?")[2]
    options = (option.partition("=")[0] for option in query.split("&"))
    return any("@" in part for part in (url.host or "", url.database or "", *options))


def shown_url(url: URL) -> str:
    """Return a URL for messages, with asterisks for passwords, and for parameters that may be one."""
    masked = {name: "***" for name in url.query if name not in _SHOWN}
    return url.update_query_dict(masked).render_as_string(hide_password=True)


def url_without_secrets(url: URL) -> URL:
    """Return a URL that has no password."""
    # `URL.set` takes None for no change.
    return url._replace(password=None).difference_update_query(SECRETS)


def password_of(url: URL) -> str | None:
    """Return the password that a URL carries before the host, or in its query, which wins as it does for libpq."""
    given = url.query.get("password", url.password)
    return None if given is None else given if isinstance(given, str) else given[-1]
