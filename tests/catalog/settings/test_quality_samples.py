"""Rules allow samples of failing rows one by one, and none by default."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import InvalidConfigurationError
from catalog.settings.quality_rules import QualityRules


def test_no_rule_allows_a_sample_by_default() -> None:
    config = {"columns": {"a": {"min": 0}}, "unique": ["a"], "references": {"a": "b.c.d"}}
    rules = QualityRules.from_config(config, keys=())
    assert [rule.sample for rule in (rules.columns["a"], *rules.unique, rules.references["a"])] == [0, 0, 0]


def test_each_rule_allows_its_own_sample() -> None:
    config = {
        "columns": {"a": {"min": 0, "sample": 1}, "b": {"max": 1}},
        "unique": [{"columns": ["a"], "sample": 2}, {"columns": ["b"]}],
        "references": {"a": {"to": "b.c.d", "sample": 20}, "b": {"to": "b.c.e"}},
    }
    rules = QualityRules.from_config(config, keys=())
    assert [rule.sample for rule in rules.columns.values()] == [1, 0]
    assert [rule.sample for rule in rules.unique] == [2, 0]
    assert [(str(rule), rule.sample) for rule in rules.references.values()] == [("b.c.d", 20), ("b.c.e", 0)]


@pytest.mark.parametrize("sample", [-1, 21, True, "5", 1.5, None])
def test_samples_are_a_few_rows(sample: Any) -> None:
    for config, place in (
        ({"columns": {"a": {"min": 0, "sample": sample}}}, "quality.columns.a.sample"),
        ({"unique": {"columns": ["a"], "sample": sample}}, "quality.unique.sample"),
        ({"references": {"a": {"to": "b.c.d", "sample": sample}}}, "quality.references.a.sample"),
    ):
        with pytest.raises(InvalidConfigurationError, match=f"{place} is .*, expected a number of rows from 0 to 20"):
            QualityRules.from_config(config, keys=())


@pytest.mark.parametrize("target", [{"sample": 1}, {"to": "b.c"}, {"to": "b.c.d", "rows": 1}])
def test_references_as_mappings_are_checked(target: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"quality\.references\.a"):
        QualityRules.from_config({"references": {"a": target}}, keys=())
