"""Sources of listed tables that are rendered for each run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from calve_airflow.forms.templates import naming_templates, render_source
from catalog.errors import InvalidConfigurationError, SourceFileError


def render(source: str, **values: Any) -> str:
    dag = DAG("load", schedule=None, render_template_as_native_obj=True)
    context: Any = {"dag": dag, "ds": "2024-05-01", "dag_run": SimpleNamespace(partition_key="day=1"), **values}
    return render_source(source, context)


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ("/in/{{ ds }}/*.csv", "/in/2024-05-01/*.csv"),
        ("/in/{{ ds_nodash }}", "/in/20240501"),
        ("s3://bucket/in/{{ dag_run.partition_key }}/*.csv", "s3://bucket/in/day=1/*.csv"),
        ("/in/{{ params.x }}/a.csv", "/in/{{ ds }}/a.csv"),
        ("/in/{a,b}/*.csv", "/in/{a,b}/*.csv"),
    ],
)
def test_a_source_is_rendered_once(source: str, rendered: str) -> None:
    assert render(source, ds_nodash="20240501", params={"x": "{{ ds }}"}) == rendered


@pytest.mark.parametrize("value", ["..", "../../etc", "a/../../b", "%2e%2e", "x/%2E%2E/y"])
def test_a_template_does_not_lead_out_of_its_folder(value: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="not below /in"):
        render("/in/{{ params.x }}/a.csv", params={"x": value})


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ ds }}/a.csv", "begins with a template"),
        ("in{{ ds }}/a.csv", "begins with a template"),
        ("/in/{{ data_interval_start }}/a.csv", "'data_interval_start' is undefined; a run that"),
        ("/in/{{ ds", "cannot be rendered"),
        ("/in/{{ ''.__class__.__mro__ }}", "cannot be rendered"),
        ("/in/{{ 1 / 0 }}", "cannot be rendered"),
    ],
)
def test_what_a_run_cannot_render_is_told(source: str, said: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=said):
        render(source)


def test_a_missing_source_with_markup_tells_that_forms_are_not_rendered() -> None:
    missing = "source {} does not exist; check the path"
    with (
        pytest.raises(SourceFileError, match="check the path; templates in a form are not"),
        naming_templates("/{{ ds }}"),
    ):
        raise SourceFileError(missing.format("/{{ ds }}"))
    with pytest.raises(SourceFileError, match=r"check the path$"), naming_templates("/2024"):
        raise SourceFileError(missing.format("/2024"))
