"""The options of the JVM of local sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from catalog.settings.environment import SPARK_JVM_OPTIONS
from spark_jobs.sessions import local_session
from standalone.class_archive import jvm_options
from standalone.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_DEFAULT_OF_SERVERS = 240 << 20


def test_a_long_session_has_room_for_compiled_code(spark: SparkSession) -> None:
    """Each statement has classes of its own; Java stops compiling when 48 MB, its default with C1 alone, are full."""
    assert spark._jvm is not None
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    room = sum(pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code"))
    assert room >= _DEFAULT_OF_SERVERS


def test_sessions_and_submitted_jobs_have_the_same_options() -> None:
    session, job = local_session._jvm_options(), jvm_options(require_java())
    assert session.startswith(SPARK_JVM_OPTIONS)
    assert job.startswith(SPARK_JVM_OPTIONS)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "org.apache.spark.SparkException: Could not parse Master URL: 'sparkk://h:1'\n\tat org.X.y(X.scala:1)",
            "CALVE_SPARK_MASTER is 'sparkk://h:1', which is no master; use one such as local[*] or spark://host:7077",
        ),
        (
            "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis stopped",
            "Spark's master sparkk://h:1 does not accept the session; start it, correct CALVE_SPARK_MASTER, or check",
        ),
        (
            "Java gateway process exited\n\tat org.apache.X.y(X.scala:1)\norg.apache.X.<init>(X.scala:2)\n"
            "java.base/jdk.X.newInstance0(Native Method)\n\n/usr/bin/env: no java\nsbt unresolved dependency: a",
            "Spark does not start on sparkk://h:1; it needs Java 17 or 21 in JAVA_HOME or PATH, and CALVE_SPARK_MASTER "
            "selects another master. Its output: sbt unresolved dependency: a / Java gateway process exited / "
            "/usr/bin/env: no java",
        ),
    ],
)
def test_an_error_at_the_start_tells_what_to_do(output: str, said: str) -> None:
    assert local_session._why("sparkk://h:1", output).startswith(said)
