"""Strings that Airflow would render as templates, and those that a run renders."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from calve_airflow.catalog_access import catalog_errors
from catalog.errors import InvalidConfigurationError, SourceFileError, WrongFieldError

if TYPE_CHECKING:
    from airflow.sdk import Context

_Execute = TypeVar("_Execute", bound=Callable[..., Any])
_MARKUP = re.compile(r"\{[{%#]")


def for_mapped_tasks(execute: _Execute) -> _Execute:
    """Make an operator that returns arguments of mapped tasks refuse arguments with template markup.

    Airflow renders the template fields of a mapped task after it has inserted such arguments: markup in a string from a
    form or from a metastore would run with the rights of the worker.

    Raises:
        AirflowFailException: An argument contains template markup.
    """

    @functools.wraps(execute)
    def checked(*args: Any, **kwargs: Any) -> Any:
        arguments = execute(*args, **kwargs)
        with catalog_errors():
            refuse_templates(arguments)
        return arguments

    checked.refuses_templates = True  # type: ignore[attr-defined]  # a test of all DAGs looks for it
    return checked  # type: ignore[return-value]


def only(*names: str) -> Callable[[Any], dict[str, Any]]:
    """Return a function for `XComArg.map` that checks the arguments that a mapped task gets from an XCom.

    Users may write XComs: other arguments could set what no form offers, such as Spark's configuration.

    Raises:
        AirflowFailException: There are other arguments, or one contains template markup.
    """

    def checked(arguments: Any) -> dict[str, Any]:
        with catalog_errors():
            if not isinstance(arguments, dict) or sorted(arguments) != sorted(names):
                raise WrongFieldError(
                    "XCom", f"the arguments are not {' and '.join(names)}; clear the task before this one"
                )
            refuse_templates(arguments)
        return arguments

    return checked


def refuse_templates(arguments: object) -> None:
    """Refuse nested arguments of which a string contains template markup.

    Raises:
        WrongFieldError: A string contains template markup.
    """
    for text in _strings(arguments):
        if _MARKUP.search(text):
            raise WrongFieldError(
                "form",
                f"{text[:80]!r} contains '{{{{', '{{%' or '{{#', which Airflow would render as a template; use a "
                "string without it, or use `calve` on the command line",
            )


def render_source(source: str, context: Context) -> str:
    """Render the source of a table's entry in the YAML list for a run, for instance `/in/{{ ds }}/*.csv`.

    Never call it with a string from a form. Values from a form, such as `params.x`, are inserted and not rendered.

    Raises:
        InvalidConfigurationError: The template is invalid, the run has no such value, or the rendered source is not
            below the folder before the first template.
    """
    template = _MARKUP.search(source)
    if template is None:
        return source
    # Imported late, because DAG files do not need it.
    from jinja2 import StrictUndefined, TemplateError

    folder = source[: template.start()].rpartition("/")[0]
    if not folder:
        raise InvalidConfigurationError(f"source {source} begins with a template; begin it with a fixed folder")
    # Without native objects, of which a path is none.
    environment: Any = context["dag"].get_template_env(force_sandboxed=True)
    environment.undefined = StrictUndefined
    try:
        rendered = str(environment.from_string(source).render(context))
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidConfigurationError(
            f"source {source} cannot be rendered for this run: {error}; a run that is triggered without a logical date "
            "has no ds and no data interval, and only a run of a partition has a dag_run.partition_key"
        ) from None
    if not rendered.startswith(f"{folder}/") or ".." in unquote(rendered[len(folder) :]).split("/"):
        raise InvalidConfigurationError(
            f"source {source} is {rendered} for this run, which is not below {folder}; a template cannot have '..'"
        )
    return rendered


@contextmanager
def naming_templates(source: str) -> Iterator[None]:
    """Add to the error of a missing source with markup, which is from a form, that it is not rendered.

    Raises:
        SourceFileError: The source does not exist.
    """
    try:
        yield
    except SourceFileError as error:
        if _MARKUP.search(source) is None:
            raise
        raise SourceFileError(
            f"{error}; templates in a form are not rendered: write the source without, or in tables.yaml"
        ) from error


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _strings(name)
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)
