"""Spark's configuration of one table and of one run."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import WrongFieldError
from catalog.settings.spark_conf import run_spark_conf, table_spark_conf

CONF = {
    "spark.executor.memory": "4g",
    "spark.cores.max": 8,
    "spark.yarn.queue": "night",
    "spark.sql.adaptive.enabled": True,
}


@pytest.mark.parametrize("read", [table_spark_conf, run_spark_conf])
def test_values_become_strings(read: Any) -> None:
    assert read("spark", CONF) == {
        "spark.executor.memory": "4g",
        "spark.cores.max": "8",
        "spark.yarn.queue": "night",
        "spark.sql.adaptive.enabled": "true",
    }
    assert read("spark", None) == {}


@pytest.mark.parametrize("read", [table_spark_conf, run_spark_conf])
@pytest.mark.parametrize(
    ("conf", "said"),
    [
        (["spark.cores.max"], "is not a mapping"),
        ({"executor.memory": "4g"}, r"'executor\.memory' is no setting of Spark"),
        ({"spark.x=1 --jars": "4g"}, "no setting of Spark"),
        ({3: "4g"}, "3 is no setting of Spark"),
        ({"spark.cores.max": [1]}, r"spark\.cores\.max is \[1\]"),
        ({"spark.cores.max": None}, r"spark\.cores\.max is None"),
        ({"spark.yarn.queue": "a\nb"}, r"spark\.yarn\.queue is"),
        ({"spark.yarn.queue": "a\rb"}, r"spark\.yarn\.queue is"),
        ({"spark.executor.memory": "lots"}, "spark.executor.memory is 'lots'; give a size such as 4g or 512m"),
        ({"spark.driver.memoryOverhead": "0"}, "give a size"),
        ({"spark.executor.memory": "1.5g"}, "give a size"),
        ({"spark.executor.memory": -1}, "give a size"),
        ({"spark.cores.max": "many"}, "spark.cores.max is 'many'; give a whole number, 1 or more"),
        ({"spark.executor.cores": 0}, "give a whole number"),
        ({"spark.sql.shuffle.partitions": True}, "give a whole number"),
        ({"spark.ssl.keyPassword": "x"}, "the name of a secret"),
        ({"spark.hadoop.fs.azure.sas.box.account": "x"}, "the name of a secret"),
        ({"spark.hadoop.fs.gs.auth.service.account.private.key": "x"}, "the name of a secret"),
        ({"spark.executorEnv.CALVE_CATALOG_URL": "x"}, "the name of a secret"),
        ({"spark.sql.catalog.x.jdbc.pass": "x"}, "the name of a secret"),
        ({"spark.authenticate.secret": "x"}, "the name of a secret"),
        ({"spark.executorEnv.LAKE_API_KEY": "x"}, "the name of a secret"),
        ({"spark.executorEnv.AZURE_STORAGE_CONNECTION_STRING": "x"}, "the name of a secret"),
        ({"spark.hadoop.fs.s3a.session.token": "x"}, "the name of a secret"),
        ({"spark.hadoop.fs.s3a.access.key": "x"}, "the name of a secret"),
    ],
)
def test_what_is_no_setting_or_a_secret_is_refused(read: Any, conf: Any, said: str) -> None:
    with pytest.raises(WrongFieldError, match=said):
        read("spark", conf)


@pytest.mark.parametrize(
    "name",
    [
        "spark.driver.extraJavaOptions",
        "spark.executor.extraClassPath",
        "spark.jars.packages",
        "spark.pyspark.python",
        "spark.submit.pyFiles",
        "spark.sql.extensions",
        "spark.plugins",
        "spark.hadoop.fs.s3a.endpoint",
        "spark.kubernetes.container.image",
        "spark.executorEnv.PYTHONPATH",
        "spark.executor.memoryX",
        "spark.speculation",
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.files.ignoreMissingFiles",
        "spark.sql.adaptive.customCostEvaluatorClass",
        "spark.sql.adaptive.optimizer.excludedRules",
    ],
)
def test_a_run_sets_nothing_that_could_run_code(name: str) -> None:
    assert table_spark_conf("spark", {name: "x"}) == {name: "x"}
    with pytest.raises(WrongFieldError, match="a run cannot set"):
        run_spark_conf("spark_conf", {name: "x"})


def test_a_value_of_a_run_has_no_second_setting_in_it() -> None:
    with pytest.raises(WrongFieldError, match="give a size such as"):
        run_spark_conf("spark_conf", {"spark.executor.memory": "2g -agentpath:/tmp/x"})
    with pytest.raises(WrongFieldError, match="give a number, a size, a time or a name"):
        run_spark_conf("spark_conf", {"spark.yarn.queue": "night -agentpath:/tmp/x"})
