"""Access of executors to the catalog's database, whose password is never part of a task."""

from __future__ import annotations

import os

from sqlalchemy import URL, make_url

from catalog.storage.urls import SECRETS, url_without_secrets


def address_of(url: URL) -> str:
    """Return a database's URL without passwords, to send to executors."""
    return url_without_secrets(url).render_as_string(hide_password=False)


def executor_url(address: str) -> str:
    """Return the URL with which this process connects to the database of an address.

    The password comes from `CALVE_CATALOG_URL` in the executor's environment if it names the same server and user;
    otherwise libpq looks it up in `PGPASSWORD`, `PGPASSFILE` and `~/.pgpass`.
    """
    url, own = make_url(address), os.environ.get("CALVE_CATALOG_URL")
    if own and _account(known := make_url(own)) == _account(url):
        secrets = {name: known.query[name] for name in SECRETS if name in known.query}
        url = url.set(password=known.password).update_query_dict(secrets)
    return url.render_as_string(hide_password=False)


def _account(url: URL) -> tuple[object, ...]:
    return url.get_backend_name(), url.host, url.port or 5432, url.username, url.query.get("host")
