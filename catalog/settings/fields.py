"""Validation of the values of forms, options and configurations."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

from catalog.errors import WrongFieldError

MAX_AGE = timedelta(days=36_500)
_SHOWN = 80
_SURROGATE = re.compile("[\ud800-\udfff]")


def hours(field: str, value: object) -> timedelta:
    """Return an age given in hours.

    Raises:
        WrongFieldError: It is not a number, negative, or more than 100 years.
    """
    return timedelta(hours=_number(field, value, "hours", MAX_AGE / timedelta(hours=1)))


def days(field: str, value: object, minimum: float = 0) -> timedelta:
    """Return an age given in days.

    Raises:
        WrongFieldError: It is not a number, below the minimum, or more than 100 years.
    """
    return timedelta(days=_number(field, value, "days", MAX_AGE / timedelta(days=1), minimum))


def whole_number(field: str, value: object, maximum: int) -> int:
    """Return a field's whole number, 1 or more.

    Raises:
        WrongFieldError: It is not one, or exceeds the maximum.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise WrongFieldError(field, f"{shown(value)} is not a whole number from 1 to {maximum:,}; correct it")
    return value


def flag(field: str, value: object) -> bool:
    """Return a field's boolean.

    Raises:
        WrongFieldError: It is neither true nor false.
    """
    if not isinstance(value, bool):
        raise WrongFieldError(
            field,
            f"{shown(value)} is neither true nor false; use one of them (a template gives "
            "a boolean in a DAG with render_template_as_native_obj=True)",
        )
    return value


def text(field: str, value: object) -> str:
    """Return a field's string.

    Raises:
        WrongFieldError: It is not a string, or not valid Unicode.
    """
    if not isinstance(value, str) or _SURROGATE.search(value):
        raise WrongFieldError(field, f"{shown(value)} is not a valid UTF-8 string; correct it")
    return value


def texts(field: str, value: object) -> tuple[str, ...]:
    """Return a field's list of strings, without surrounding blanks; an empty tuple for null.

    Raises:
        WrongFieldError: It is not a list of strings.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise WrongFieldError(field, f"{shown(value)} is not a list of strings; write one per line")
    return tuple(text(field, item).strip() for item in value)


def require_known(form: Mapping[str, object], known: Sequence[str]) -> None:
    """Check that a form has no unknown fields.

    Raises:
        WrongFieldError: It has one.
    """
    if unknown := sorted(set(map(str, form)) - set(known)):
        raise WrongFieldError(unknown[0][:_SHOWN], f"the form has no such field; its fields are {', '.join(known)}")


def shown(value: object) -> str:
    """Return a value for messages, shortened to one line."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of about {int(value.bit_length() * math.log10(2)):,} digits"
    return repr(value)[:_SHOWN]


def _number(field: str, value: object, unit: str, maximum: float, minimum: float = 0) -> float:
    # Comparisons with NaN are false.
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise WrongFieldError(
            field, f"{shown(value)} is not a number of {unit} from {minimum:g} to {maximum:,.0f}; correct it"
        )
    return value
