"""The catalog's database as executors reach it: tasks carry its address, and never its password."""

from __future__ import annotations

import os

from sqlalchemy import URL, make_url

from catalog.errors import InvalidConfigurationError

_SECRETS = ("password", "sslpassword", "passfile")


def address_of(url: URL) -> str:
    """Return a database's URL without passwords, to be sent to executors."""
    # `URL.set` takes None for no change.
    return url._replace(password=None).difference_update_query(_SECRETS).render_as_string(hide_password=False)


def executor_url(address: str) -> str:
    """Return the URL by which this process reaches the database of an address.

    The password is that of `CALVE_CATALOG_URL` in the executor's own environment, if this names the same database;
    otherwise libpq looks for it: `PGPASSWORD`, `PGPASSFILE`, `~/.pgpass`.

    Raises:
        InvalidConfigurationError: `CALVE_CATALOG_URL` of this executor names another database.
    """
    own = os.environ.get("CALVE_CATALOG_URL")
    if not own:
        return address
    url, known = make_url(address), make_url(own)
    if _place(url) == _place(known):
        return own
    raise InvalidConfigurationError(
        f"CALVE_CATALOG_URL of this executor names {known.render_as_string(hide_password=True)}, and the job works on "
        f"{address}; set the same one for executors and driver"
    )


def _place(url: URL) -> tuple[object, ...]:
    return url.get_backend_name(), url.host, url.port or 5432, url.database, url.username, url.query.get("host")
