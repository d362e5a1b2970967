"""The field `compaction` of an entry in the list of tables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalog.errors import InvalidConfigurationError
from catalog.maintenance.compaction import policies
from catalog.settings.compaction_rules import CompactionRules, DailyLimit
from catalog.settings.table_config import read_table_list


@pytest.mark.parametrize(
    ("config", "rules"),
    [
        ({}, CompactionRules(None, 5, timedelta(hours=1), DailyLimit())),
        ({"target_file_size": "256MB"}, CompactionRules(target_file_size=256 * 2**20)),
        ({"target_file_size": 2**21}, CompactionRules(target_file_size=2**21)),
        ({"min_files": 10, "min_age": "2d"}, CompactionRules(min_files=10, min_age=timedelta(days=2))),
        ({"at_most_per_day": "50GB"}, CompactionRules(at_most_per_day=DailyLimit(50 * 2**30))),
        ({"at_most_per_day": "200 partitions"}, CompactionRules(at_most_per_day=DailyLimit(partitions=200))),
        ({"at_most_per_day": "1 partition"}, CompactionRules(at_most_per_day=DailyLimit(partitions=1))),
    ],
)
def test_rules_are_read(config: dict[str, Any], rules: CompactionRules) -> None:
    assert CompactionRules.from_config(config) == rules


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (True, "compaction is True, expected a mapping"),
        ({"min_file": 3}, "unknown compaction field min_file; the fields are target_file_size, min_files, min_age, at"),
        ({"target_file_size": "256 apples"}, "compaction.target_file_size is '256 apples', expected a size from 1MB"),
        ({"target_file_size": "10KB"}, "compaction.target_file_size is '10KB', expected a size from 1MB to 1TB"),
        ({"min_files": 1}, "compaction.min_files is 1, expected a whole number from 2 to"),
        ({"min_files": True}, "compaction.min_files is True, expected a whole number"),
        ({"min_age": 3600}, "compaction.min_age is 3600, expected a time such as 30m, 1h or 2d"),
        ({"at_most_per_day": 200}, "compaction.at_most_per_day is 200, expected a size such as 50GB, or a number such"),
        ({"at_most_per_day": "200"}, "compaction.at_most_per_day is '200', expected"),
        ({"at_most_per_day": "0 partitions"}, "compaction.at_most_per_day is '0 partitions', expected"),
    ],
)
def test_what_is_wrong_is_named(config: Any, problem: str) -> None:
    with pytest.raises(InvalidConfigurationError) as error:
        CompactionRules.from_config(config)
    assert problem in str(error.value)


def test_all_problems_are_named_and_only_the_own_entry_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tables.yaml"
    wrong = {"min_files": 0, "min_age": "soon"}
    tables = {
        "a.good": {"compaction": {"min_files": 3}},
        "a.default": {"compaction": {}},
        "a.bad": {"compaction": wrong},
    }
    path.write_text(yaml.safe_dump({"tables": {**tables, "a.none": {"source": "/in"}}}))
    monkeypatch.setenv("CALVE_TABLES", str(path))
    (bad,) = read_table_list().wrong.values()
    assert [problem.partition(": ")[2].split(",")[0] for problem in bad.error.problems] == [
        "compaction.min_files is 0",
        "compaction.min_age is 'soon'",
    ]
    assert policies() == {"a.good": CompactionRules(min_files=3), "a.default": CompactionRules()}
