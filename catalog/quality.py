"""Rules for the quality of a table's partitions, and results of checking them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FailedCheck:
    """A check that a partition did not pass: what was checked, what was found, what would have been right."""

    check: str
    observed: str
    allowed: str


@dataclass(frozen=True)
class PartitionCheck:
    """How a partition fared in all checks."""

    partition_id: int
    passed: bool
    failures: tuple[FailedCheck, ...] = ()


class QualityRules:
    """Placeholder."""

    @classmethod
    def from_config(cls, mapping, *, keys):
        return cls()
