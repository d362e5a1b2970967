"""Quotes that nothing closes: the files are refused with the line, where lines would be lost; others are as before."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.operations.job_requests import SourceJob
from spark_jobs.reading.open_quotes import open_quote
from spark_jobs.reading.source_lines import has_long_values

LINES = "id,day,note\n"
FIRST = '1,2024-01-01,"open\n2,2024-01-01,x\n'


def job_with(**options: str) -> SourceJob:
    return SourceJob(operation_id="o", step="s", attempt=1, table="a.t", source_format="csv", source_options=options)


def problem_of(text: str, **options: str) -> str | None:
    job = job_with(**{"multiLine": "true", **options})
    return open_quote(io.StringIO(text, newline=""), job)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (LINES + FIRST, 2, "nothing closes it"),
        (LINES + '1,2024-01-01,"one\nvalue"\n2,2024-01-01,"open', 4, "nothing closes it"),
        (LINES + FIRST + '3,2024-01-02,"y"\n4,2024-01-02,z\n', 2, "in line 4, does not end"),
        (LINES.replace("\n", "\r\n") + FIRST.replace("\n", "\r\n"), 2, "nothing closes it"),
    ],
)
def test_lines_in_an_open_quote_are_noticed(text: str, line: int, reason: str) -> None:
    problem = problem_of(text)
    assert problem is not None
    assert f"has in line {line} a quote" in problem
    assert reason in problem


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('1,5" nail,x\n2,6" nail,y\n', {}),
        ('1,"5" nail",x\n2,"a ""b""\nc",y\n', {}),
        ('1,"a\n# b"\n# a "comment\n2,"c"\n', {"comment": "#"}),
        ("1,'a \"\nb'\n", {"quote": "'"}),
        ('1;"a\\"\nb";c\n', {"sep": ";", "escape": "\\"}),
        ('1\t"a\nb"\tc\n', {"sep": r"\t"}),
        ('1, "a\nb",c\n', {"ignoreLeadingWhiteSpace": "true"}),
        ('1||"a\n', {"sep": "||"}),
        ('1,"a\n', {"quote": ""}),
        ('1,"a|2,b|', {"lineSep": "|"}),
        ("", {}),
    ],
)
def test_other_files_are_read_as_before(text: str, options: dict[str, str]) -> None:
    assert problem_of(text, **options) is None


def test_a_value_is_not_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.reading.open_quotes._LONGEST_VALUE", 20)
    problem = problem_of(LINES + FIRST + '3,2024-01-02,"y"\n')
    assert problem is not None
    assert "line 2" in problem
    assert "not closed after 20 characters" in problem


def test_files_are_checked_if_spark_reads_values_over_several_lines() -> None:
    assert has_long_values(job_with(MultiLine="True"))
    assert has_long_values(job_with(encoding="UTF-16LE"))
    assert not has_long_values(job_with(encoding="UTF-16LE", multiLine="false"))
    assert not has_long_values(job_with(encoding="ISO-8859-1"))
    assert not has_long_values(job_with())


_VALUES = st.text(st.sampled_from("ab\",;\n#'\\ "), max_size=6)


@given(rows=st.lists(st.lists(_VALUES, min_size=2, max_size=4), max_size=6))
def test_files_as_programs_write_them_are_never_refused(rows: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    assert problem_of(text.getvalue()) is None
    assert csv.field_size_limit() == 131_072


@given(rows=st.lists(st.lists(_VALUES, min_size=2, max_size=4), min_size=1, max_size=6), data=st.data())
def test_a_file_that_was_cut_within_a_quote_is_refused(rows: list[list[str]], data: st.DataObject) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    whole = text.getvalue()
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    assert (problem_of(cut) is not None) == bool(cut.count('"') % 2)
