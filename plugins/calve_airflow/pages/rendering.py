"""Templates of the pages, and how they show values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from calve_airflow.visible import visible
from catalog.files.credentials import without_credentials
from catalog.settings.secret_names import is_name_of_secret
from catalog.types.literals import quoted_name

STATIC = files("calve_airflow.pages") / "static"

STOP_POLLING = 286
"""The status of a part that does not change any more, at which htmx stops asking for it."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNKNOWN = "—"
_ADDRESS = re.compile(r"\s*([a-z][a-z0-9+.-]*://|jdbc:)", re.IGNORECASE)
_WORDS = r"and|or|not|in|between|like|is|null|true|false|date|timestamp"
_PLAIN_NAME = re.compile(rf"(?!({_WORDS})$)[^\W\d]\w*", re.IGNORECASE)
_PASSWORD = re.compile(r"((?:password|pwd|passwd|secret|token)\w*\s*[=:]\s*)[^\s,;&]+", re.IGNORECASE)


def size(value: int | float | None) -> str:
    """Return a number of bytes for people, in binary units."""
    if value is None:
        return _UNKNOWN
    number = float(value)
    for unit in _UNITS:
        if abs(number) < 1024 or unit == _UNITS[-1]:
            return f"{number:,.0f} {unit}" if unit == "B" or number >= 100 else f"{number:,.1f} {unit}"
        number /= 1024
    raise AssertionError


def count(value: int | float | None) -> str:
    """Return a number with separators of thousands; a dash if it is unknown."""
    return _UNKNOWN if value is None else f"{value:,.0f}"


def breakable(name: str) -> Markup:
    """Return a name that a browser may break after its dots and underscores only."""
    return Markup("<wbr>").join(re.findall("[^._]*[._]|[^._]+", name))


def short_count(value: int | float | None) -> str:
    """Return a number in at most four characters and a unit, such as `1.2 M`."""
    if value is None:
        return _UNKNOWN
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            number = value / (1e3 if unit == "k" else limit)
            return f"{number:,.0f} {unit}" if number >= 100 else f"{number:,.1f} {unit}"
    return count(value)


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units."""
    if seconds is None:
        return _UNKNOWN
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def moment(milliseconds: int | None) -> Markup | str:
    """Return a time element, which the page's script shows in the reader's own time zone."""
    if milliseconds is None:
        return _UNKNOWN
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S"))


def form_text(value: Any) -> str:
    """Return what a field shows: the items of a list one per line, as its description asks for; otherwise JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(type(item) in (str, int) for item in value):
        lines = "\n".join(map(str, value))
        # Text that begins like JSON is read as JSON.
        if lines.count("\n") == max(0, len(value) - 1) and not lines.lstrip().startswith("["):
            return lines
    return json.dumps(value)


def as_json(value: Any) -> str:
    """Return a value as JSON for an attribute; the template escapes it."""
    return json.dumps(value, default=str, separators=(",", ":"))


def as_indented_json(value: Any) -> str:
    """Return a value as JSON for people."""
    return json.dumps(value, default=str, indent=2, ensure_ascii=False)


def rate(value: float) -> str:
    """Return a number of units a second for people."""
    return count(value) if value >= 10 else f"{value:.2g}"


def or_none(value: Any) -> Any:
    """Return a field of a page's address; None if a form sends it without a value."""
    return value or None


def with_query(path: str, **fields: Any) -> str:
    """Return a path with the fields that have a value as its query."""
    kept = {name: value for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties of a table or partition for people; other engines keep passwords in some."""
    return {name: "***" if is_name_of_secret(name) else _without_passwords(value) for name, value in properties.items()}


def _without_passwords(value: str) -> str:
    return without_credentials(value) if _ADDRESS.match(value) else _PASSWORD.sub(r"\1***", value)


def key_name(name: str) -> str:
    """Return the name of a key as it is written in a filter."""
    return name if _PLAIN_NAME.fullmatch(name) else quoted_name(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("calve_airflow.pages"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        breakable=breakable,
        key_name=key_name,
        size=size,
        count=count,
        short_count=short_count,
        duration=duration,
        moment=moment,
        rate=rate,
        as_json=as_json,
        as_indented_json=as_indented_json,
        without_secrets=without_secrets,
    )
    return environment


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page or a part of one.

    Args:
        request: The request; its mount and Airflow's own path become the prefixes of links.
        template: The template's file name.
        status: The status of the response.
        values: What the template shows.
    """
    root = request.scope.get("root_path", "")
    airflow = root.removesuffix("/calve")

    def url(path: str, /, **fields: Any) -> str:
        return f"{root}{with_query(path, **fields)}"

    text = _environment().get_template(template).render(values, url=url, airflow=airflow)
    # Values in an address may be halves of surrogate pairs, which UTF-8 lacks.
    return HTMLResponse(text.encode(errors="replace"), status, headers=_HEADERS)


DATA_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
"""The headers of all answers with values of the catalog."""

_HEADERS: Mapping[str, str] = {
    **DATA_HEADERS,
    # Airflow shows the pages in frames of its own UI.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'self'; form-action 'self'; base-uri 'none'; object-src 'none'",
}


def is_part(request: Request) -> bool:
    """Return whether a page's script asks for a part of a page."""
    return request.headers.get("hx-request") == "true"
