"""Requests of Spark jobs survive serialisation."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from catalog.errors import InvalidRequestError, WrongFieldError
from catalog.operations.job_requests import (
    BuildPartitionIndexJob,
    CheckQualityJob,
    JobRequest,
    RunStatementJob,
    SourceJob,
    ValidateSourceJob,
    VerifyMigrationJob,
    VerifyPartitionIndexJob,
    WritePartitionsJob,
    check_request,
)

COMMON: dict[str, Any] = {"operation_id": "run-1", "step": "write", "attempt": 3, "table": "demo.t"}
SOURCE: dict[str, Any] = {
    "source_format": "csv",
    "source_options": {"header": "true", "sep": "\t"},
    "columns": (("v", "int"), ("größe", "double")),
    "keys": (("z", "string"), ("a", "int")),
    "indexes": {"by_a": ["a", "z"]},
    "invalid_partitions": "skip",
}


@pytest.mark.parametrize(
    "job",
    [
        ValidateSourceJob(**COMMON, **SOURCE, dry_run=True),
        WritePartitionsJob(**COMMON, **SOURCE),
        BuildPartitionIndexJob(**COMMON, index="by_a"),
        VerifyPartitionIndexJob(**COMMON, index="by_a", repair=True),
        RunStatementJob(**COMMON, statements="USE d; SHOW TABLES", database="d", keep_going=True),
        CheckQualityJob(**COMMON, rules={"on_failure": "warn", "row_count": {"min": 1}}),
    ],
    ids=lambda job: job.script,
)
def test_a_request_reads_as_it_was_written(job: JobRequest) -> None:
    again = type(job).from_json(job.to_json())
    assert again == job
    assert all(type(getattr(again, each.name)) is type(getattr(job, each.name)) for each in fields(job))


def test_the_keys_of_a_source_keep_their_order() -> None:
    job = WritePartitionsJob.from_json(WritePartitionsJob(**COMMON, **SOURCE).to_json())
    assert isinstance(job, SourceJob)
    assert list(job.key_types.items()) == [("z", "string"), ("a", "int")]
    assert list(job.column_types) == ["v", "größe"]


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"table": "demo.t"}', '{"unknown": 1}'])
def test_another_text_is_refused_with_the_fields_that_are_expected(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"BuildPartitionIndexJob cannot be parsed.*operation_id.*index"):
        BuildPartitionIndexJob.from_json(text)


@pytest.mark.parametrize("partitions", [0, -1, True, 1.5])
def test_a_comparison_of_no_partitions_is_refused(partitions: Any) -> None:
    with pytest.raises(WrongFieldError, match=r"partitions: .* is not a whole number from 1"):
        VerifyMigrationJob(**COMMON, partitions=partitions)


def test_every_request_is_checked_before_its_job_is_submitted() -> None:
    scripts = {request.script for request in _subclasses(JobRequest) if "script" in vars(request)}
    for script in scripts:
        with pytest.raises(InvalidRequestError, match="unknown_field"):
            check_request(script, {**COMMON, "unknown_field": 1})


def test_a_request_is_checked_before_its_attempt_has_a_number() -> None:
    values = {name: value for name, value in COMMON.items() if name != "attempt"}
    check_request("build_partition_index", {**values, "index": "by_a"})
    with pytest.raises(InvalidRequestError, match="index"):
        check_request("build_partition_index", values)


def test_the_request_of_a_script_that_is_not_calves_is_not_checked() -> None:
    check_request("no_job_of_calve", {"unknown_field": 1})


def _subclasses(request: type[JobRequest]) -> list[type[JobRequest]]:
    return [request, *(each for child in request.__subclasses__() for each in _subclasses(child))]


@pytest.mark.parametrize(
    ("script", "values", "said"),
    [
        ("build_partition_index", {"table": 5, "index": "i"}, "table is 5"),
        ("verify_partition_index", {"index": "i", "repair": "false"}, "repair is 'false'"),
        ("validate_source", {"source_format": "csv", "keys": ["day date"]}, r"keys is \['day date'\]"),
        ("validate_source", {"source_format": "csv", "columns": {"id": "bigint"}}, "columns is"),
        ("stage_migration", {"threads": "many"}, "threads is 'many'"),
        ("count_values", {"partition_ids": "12"}, "partition_ids is '12'"),
        ("run_statement", {"statements": None}, "statements is None"),
        ("build_partition_index", {"index": "i", "tables": "x"}, "unknown tables"),
        ("build_partition_index", {"index": {1, 2}}, "that JSON does not have"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(script: str, values: dict[str, Any], said: str) -> None:
    common = {name: value for name, value in COMMON.items() if name != "attempt"}
    with pytest.raises(InvalidRequestError, match=said):
        check_request(script, {**common, **values})


def test_a_script_has_one_request_type() -> None:
    with pytest.raises(TypeError, match="RunStatementJob"):
        type("OtherJob", (JobRequest,), {"script": "run_statement"})
