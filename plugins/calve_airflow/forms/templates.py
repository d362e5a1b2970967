"""Texts that Airflow would take for templates."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from calve_airflow.catalog_access import catalog_errors
from catalog.errors import WrongFieldError

_Execute = TypeVar("_Execute", bound=Callable[..., Any])
_MARK = re.compile(r"\{[{%#]")


def for_mapped_tasks(execute: _Execute) -> _Execute:
    """Make an operator that returns the arguments of mapped tasks refuse those with a mark of a template in them.

    Airflow renders the template fields of a mapped task after it has put such arguments in: a name or a text that
    somebody wrote into a form, or a metastore answered, would run with the rights of the worker.

    Raises:
        AirflowFailException: There is a mark.
    """

    @functools.wraps(execute)
    def checked(*args: Any, **kwargs: Any) -> Any:
        arguments = execute(*args, **kwargs)
        with catalog_errors():
            refuse_templates(arguments)
        return arguments

    checked.refuses_templates = True  # type: ignore[attr-defined]  # what a test of all DAGs asks for
    return checked  # type: ignore[return-value]


def only(*names: str) -> Callable[[Any], dict[str, Any]]:
    """Return what checks, in a mapped task, the arguments that come from an XCom; for `XComArg.map`.

    Users may write XComs: other arguments would set what no form offers, such as Spark's configuration.

    Raises:
        AirflowFailException: There are others, or one has a mark of a template.
    """

    def checked(arguments: Any) -> dict[str, Any]:
        with catalog_errors():
            if not isinstance(arguments, dict) or sorted(arguments) != sorted(names):
                raise WrongFieldError("XCom", f"the arguments are not {' and '.join(names)}; clear the task before")
            refuse_templates(arguments)
        return arguments

    return checked


def refuse_templates(arguments: object) -> None:
    """Make sure that no text among nested arguments has a mark of a template.

    Raises:
        WrongFieldError: One has.
    """
    for text in _texts(arguments):
        if _MARK.search(text):
            raise WrongFieldError(
                "form",
                f"{text[:80]!r} has '{{{{', '{{%' or '{{#' in it, which Airflow would read as a template; use a name "
                "or a text without it, or `calve` on the command line",
            )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(name)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
