"""Look at the partitions of all tables with a partition scheme, and propose splits, merges and new partitions.

Daily, or when the environment's `CALVE_ADVISOR_SCHEDULE` says (a cron expression, a preset, or `none`), and by the
form. What the catalog knows of the data files tells which partitions are much larger than the others, and which are
tiny. Only where it does not tell between which values a partition can be split, these are counted.

| task | does |
| --- | --- |
| look | finds the partitions whose values have to be counted |
| count_values | for each table with such partitions: counts the values of the one column in just these (Spark) |
| propose | says in its log what should be done, and why; XCom `proposals` has it as forms of `rebalance_partitions` |
| apply | runs `rebalance_partitions` with each proposal that the table's entry in the YAML list allows, one at a time |
| summarise | says in its log, and returns, what is proposed and what was done; fails when something allowed failed |

A table's entry lets them be done with `rebalance: {apply: true}`; what else it can say is told in
`catalog/settings/rebalance_rules.py`. Nothing that is proposed deletes a row, and a second look after all of it was
done proposes nothing more.

Examples: `{}`; `{"tables": ["demo.delays"], "dry_run": true}`
"""

from datetime import timedelta

from airflow.sdk import DAG

from calve_airflow.forms.forms import advisor_params
from calve_airflow.forms.templates import only
from calve_airflow.operators.advising import (
    ApplyProposalOperator,
    CountValuesOperator,
    LookAtPartitionsOperator,
    ProposeOperator,
    SummariseAdviceOperator,
)
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.settings import advisor_schedule, spark_pool

with DAG(
    "rebalance_advisor",
    schedule=advisor_schedule(),
    params=advisor_params(),
    doc_md=__doc__,
    tags=["calve", "partitions"],
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=15)},
):
    look = LookAtPartitionsOperator(task_id="look")
    count = CountValuesOperator.partial(
        task_id="count_values", pool=spark_pool(), map_index_template="{{ task.table }}"
    ).expand(table=look.output)
    propose = ProposeOperator(
        task_id="propose",
        tables="{{ ti.xcom_pull('look', key='tables') }}",
        # What could not be counted is proposed the next time; and mostly nothing has to be.
        trigger_rule="all_done",
    )
    apply = ApplyProposalOperator.partial(
        task_id="apply",
        # Changes of one table do not run together.
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.statement }}",
    ).expand_kwargs(propose.output.map(only("table", "statement")))
    summarise = SummariseAdviceOperator(
        task_id="summarise",
        operation_id=OPERATION_ID,
        planned="{{ ti.xcom_pull('propose', key='proposals') }}",
        counts="{{ ti.xcom_pull('look') }}",
    )

    look >> [count, propose]
    count >> propose >> apply >> summarise
