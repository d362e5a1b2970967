"""Jobs of one application do not see settings, views and cached data of each other; each has a function."""

from __future__ import annotations

import logging
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve_airflow.submitting.applications import JOBS
from catalog import Catalog
from catalog.operations.job_requests import JobRequest, request_type
from catalog.settings.environment import SessionScope
from spark_jobs.run_jobs import NEEDED_LATER, job_function
from spark_jobs.sessions.application import _Application, _copied, _logged_to

REQUEST = JobRequest(operation_id="load", step="validate_source", attempt=1, table="demo.flights")
SETTING, VIEW = "spark.sql.caseSensitive", "left_over"


@pytest.mark.spark
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_job_sees_nothing_of_the_one_before(catalog: Catalog, spark: SparkSession, tmp_path: Path) -> None:
    application = _Application(catalog, "application", job_function, {})
    application._spark = spark
    active = SparkSession._activeSession
    try:
        with application._session(REQUEST, {}) as first:
            first.conf.set(SETTING, "true")
            first.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
            first.range(3).createOrReplaceTempView(VIEW)
            first.udf.register("left_over_function", lambda: 1)
            first.range(1000).persist().count()
            cache = first._jsparkSession.sharedState().cacheManager()
            assert not cache.isEmpty()
        assert cache.isEmpty()
        with application._session(REQUEST, {}) as second:
            assert second.conf.get(SETTING) == "false"
            assert second.conf.get("spark.sql.files.ignoreCorruptFiles") == "false"
            assert second.conf.get("spark.sql.session.timeZone") == "UTC"
            assert not second.catalog.tableExists(VIEW)
            assert not second.catalog.functionExists("left_over_function")
            assert SparkSession.getActiveSession() is not None
            assert SparkSession.builder.getOrCreate().conf.get(SETTING) == "false"
            assert second.sparkContext is spark.sparkContext
        assert spark.conf.get(SETTING) == "false"
    finally:
        SparkSession._activeSession = active
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


@pytest.mark.spark
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_failed_job_leaves_no_cached_data(catalog: Catalog, spark: SparkSession) -> None:
    application = _Application(catalog, "application", job_function, {})
    application._spark = spark

    def fail() -> None:
        with application._session(REQUEST, {}) as session:
            session.range(1000).persist().count()
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        fail()
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


@pytest.mark.parametrize("script", sorted(JOBS[SessionScope.SHARED]))
def test_each_shared_script_has_a_function_and_a_request(script: str) -> None:
    assert callable(job_function(script))
    assert request_type(script).script == script
    assert NEEDED_LATER.keys() <= JOBS[SessionScope.SHARED]


def test_modules_of_later_jobs_can_be_imported() -> None:
    for names in NEEDED_LATER.values():
        for name in names:
            assert find_spec(name) is not None


def test_output_of_spark_is_copied_in_whole_lines_from_the_start_of_the_job_on(tmp_path: Path) -> None:
    output, copied = tmp_path / "application.log", tmp_path / "log"
    output.write_text("before\n")
    with output.open("a") as lines, _copied(output, copied), _logged_to(copied):
        print("first", file=lines, flush=True)
        print("half a", end="", file=lines, flush=True)
        time.sleep(0.5)
        assert copied.read_text() == "first\n"
        logging.getLogger("spark_jobs.test").warning("of the job")
        print(" line", file=lines, flush=True)
    logging.getLogger("spark_jobs.test").warning("after the job")
    text = copied.read_text()
    assert "half a line\n" in text
    assert text.count("of the job") == 1
    assert "before" not in text
    assert "after" not in text
