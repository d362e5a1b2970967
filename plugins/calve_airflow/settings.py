"""Settings that DAG files read while Airflow parses them; none of them opens the catalog."""

from catalog.settings.environment import (
    advisor_schedule,
    compaction_schedule,
    maintenance_schedule,
    spark_pool,
    verification_schedule,
)
from catalog.settings.table_config import read_table_list

__all__ = [
    "advisor_schedule",
    "compaction_schedule",
    "maintenance_schedule",
    "read_table_list",
    "spark_pool",
    "verification_schedule",
]
