"""Which Airflow notifiers are called for what happens to a table."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import yaml

from catalog.errors import InvalidConfigurationError
from catalog.settings.fields import shown
from catalog.settings.problems import Problems

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_FIELDS = ("class", "arguments")


class NotifyEvent(StrEnum):
    """The events for which notifiers are called, by their names in the configuration."""

    FAILURE = "on_failure"
    """A task has failed after its last try."""
    APPROVAL = "on_approval"
    """A deletion waits for a person's approval."""
    QUALITY = "on_quality"
    """Partitions have failed their quality check."""


@dataclass(frozen=True)
class NotifierRule:
    """A notifier.

    Attributes:
        path: The dotted path of its class, such as `airflow.providers.smtp.notifications.smtp.SmtpNotifier`.
        arguments: The keyword arguments of the class; those in its `template_fields` may be templates.
    """

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NotifyRules:
    """The `notify:` part of a table's entry in the YAML list, or the setting `CALVE_NOTIFY`.

        on_failure: [my.Notifier, {class: my.Mailer, arguments: {to: lake@example.com, subject: "{{ calve.table }}"}}]
        on_approval: [my.Notifier]

    Attributes:
        notifiers: The notifiers by event; an event that is not listed has no rule, and one with an empty list none.
    """

    notifiers: Mapping[NotifyEvent, tuple[NotifierRule, ...]] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Any, place: str = "notify") -> Self:
        """Return the rules of a mapping.

        Args:
            place: The name of the mapping, for messages.

        Raises:
            InvalidConfigurationError: An event or a field is unknown, or has an invalid value.
        """
        example = "{on_failure: [my.Notifier]}"
        if config is None:
            return cls()
        if not isinstance(config, Mapping):
            raise InvalidConfigurationError(f"{place} is {shown(config)}, expected a mapping such as {example}")
        problems, notifiers = Problems(), dict[NotifyEvent, tuple[NotifierRule, ...]]()
        known = tuple(map(str, NotifyEvent))
        with problems:
            if unknown := sorted(set(map(str, config)) - set(known)):
                raise InvalidConfigurationError(
                    f"unknown {place} field {', '.join(unknown)}; the fields are {', '.join(known)}"
                )
        for event in NotifyEvent:
            with problems:
                if event in config:
                    notifiers[event] = _notifiers(f"{place}.{event}", config[event])
        problems.report()
        return cls(notifiers)


def _notifiers(place: str, value: Any) -> tuple[NotifierRule, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidConfigurationError(f"{place} is {shown(value)}, expected a list such as [my.Notifier]")
    problems, rules = Problems(), list[NotifierRule]()
    for number, item in enumerate(value, 1):
        with problems:
            rules.append(_notifier(f"{place}, notifier {number}", item))
    problems.report()
    return tuple(rules)


def _notifier(place: str, item: Any) -> NotifierRule:
    """Return a notifier, which is not imported: the hosts that read the list may not have it."""
    fields = {"class": item} if isinstance(item, str) else item
    if not isinstance(fields, Mapping):
        raise InvalidConfigurationError(
            f"{place} is {shown(item)}, expected the path of a class such as my.Notifier, or a mapping with "
            f"{' and '.join(_FIELDS)}"
        )
    if unknown := sorted(set(map(str, fields)) - set(_FIELDS)):
        raise InvalidConfigurationError(f"{place}: unknown field {', '.join(unknown)}; use {' and '.join(_FIELDS)}")
    path, arguments = fields.get("class"), fields.get("arguments") or {}
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise InvalidConfigurationError(f"{place}: class is {shown(path)}, expected a dotted path such as my.Notifier")
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
        raise InvalidConfigurationError(
            f"{place}: arguments is {shown(arguments)}, expected a mapping of names to values"
        )
    return NotifierRule(path, dict(arguments))


def rules_of_all_tables() -> NotifyRules:
    """Return the notifiers for what a table's entry has none for: `CALVE_NOTIFY`, the same mapping in YAML.

    Raises:
        InvalidConfigurationError: It is not YAML, or not such a mapping.
    """
    try:
        config = yaml.safe_load(os.environ.get("CALVE_NOTIFY") or "")
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidConfigurationError(f"CALVE_NOTIFY is not YAML: {error}") from None
    return NotifyRules.from_config(config, "CALVE_NOTIFY")
