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
