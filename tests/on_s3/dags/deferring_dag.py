"""Builds a partition index in a task that waits in the triggerer."""

from airflow.sdk import DAG

from calve_airflow.forms.indexes import index_params
from calve_airflow.operators.indexes import CreatePartitionIndexOperator
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.operators.spark_job import SparkJobOperator
from calve_airflow.settings import spark_pool

TABLE, INDEX = "{{ params.table }}", "{{ params.index }}"

with DAG("deferring", schedule=None, params=index_params(), render_template_as_native_obj=True):
    create = CreatePartitionIndexOperator(
        task_id="create", operation_id=OPERATION_ID, table=TABLE, index=INDEX, keys="{{ params['keys'] }}"
    )
    build = SparkJobOperator(
        task_id="build",
        job="build_partition_index",
        operation_id=OPERATION_ID,
        request={"table": TABLE, "index": INDEX},
        pool=spark_pool(),
        deferrable=True,
    )
    create >> build
