"""Calls about what Calve does not have: constraints, transactions, roles, workload management, schemas.

Calls that read answer as a metastore in which there are none; the others are refused by an exception of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import MetaException, NoSuchObjectException, NoSuchTxnException

from catalog.doors.hms.base import Base

_EMPTY: Mapping[str, Callable[[], Any]] = {
    # Constraints
    "get_primary_keys": lambda: ttypes.PrimaryKeysResponse(primaryKeys=[]),
    "get_foreign_keys": lambda: ttypes.ForeignKeysResponse(foreignKeys=[]),
    "get_unique_constraints": lambda: ttypes.UniqueConstraintsResponse(uniqueConstraints=[]),
    "get_not_null_constraints": lambda: ttypes.NotNullConstraintsResponse(notNullConstraints=[]),
    "get_default_constraints": lambda: ttypes.DefaultConstraintsResponse(defaultConstraints=[]),
    "get_check_constraints": lambda: ttypes.CheckConstraintsResponse(checkConstraints=[]),
    "get_all_table_constraints": lambda: ttypes.AllTableConstraintsResponse(
        allTableConstraints=ttypes.SQLAllTableConstraints([], [], [], [], [], [])
    ),
    # Transactions and compactions
    "get_open_txns": lambda: ttypes.GetOpenTxnsResponse(txn_high_water_mark=0, open_txns=[], abortedBits=b""),
    "get_open_txns_req": lambda: ttypes.GetOpenTxnsResponse(txn_high_water_mark=0, open_txns=[], abortedBits=b""),
    "get_open_txns_info": lambda: ttypes.GetOpenTxnsInfoResponse(txn_high_water_mark=0, open_txns=[]),
    "get_valid_write_ids": lambda: ttypes.GetValidWriteIdsResponse(tblValidWriteIds=[]),
    "get_max_allocated_table_write_id": lambda: ttypes.MaxAllocatedTableWriteIdResponse(maxWriteId=0),
    "get_latest_txnid_in_conflict": lambda: 0,
    "heartbeat_lock_materialization_rebuild": lambda: False,
    "show_compact": lambda: ttypes.ShowCompactResponse(compacts=[]),
    "find_next_compact": ttypes.OptionalCompactionInfoStruct,
    "find_next_compact2": ttypes.OptionalCompactionInfoStruct,
    "find_columns_with_stats": list,
    "get_latest_committed_compaction_info": lambda: ttypes.GetLatestCommittedCompactionInfoResponse(compactions=[]),
    "get_all_write_event_info": list,
    # Users, roles and privileges
    "get_role_names": list,
    "list_roles": list,
    "list_privileges": list,
    "get_privilege_set": lambda: ttypes.PrincipalPrivilegeSet({}, {}, {}),
    "get_principals_in_role": lambda: ttypes.GetPrincipalsInRoleResponse(principalGrants=[]),
    "get_role_grants_for_principal": lambda: ttypes.GetRoleGrantsForPrincipalResponse(principalGrants=[]),
    "get_all_token_identifiers": list,
    "get_master_keys": list,
    # Others
    "get_type_all": dict,
    "get_dataconnectors": list,
    "get_all_resource_plans": lambda: ttypes.WMGetAllResourcePlanResponse(resourcePlans=[]),
    "get_active_resource_plan": ttypes.WMGetActiveResourcePlanResponse,
    "get_runtime_stats": list,
    "get_all_stored_procedures": list,
    "get_all_packages": list,
    "get_schemas_by_cols": lambda: ttypes.FindSchemasByColsResp(schemaVersions=[]),
    "get_schema_all_versions": list,
    "get_file_metadata": lambda: ttypes.GetFileMetadataResult(metadata={}, isSupported=False),
    "get_file_metadata_by_expr": lambda: ttypes.GetFileMetadataByExprResult(metadata={}, isSupported=False),
    "put_file_metadata": ttypes.PutFileMetadataResult,
    "clear_file_metadata": ttypes.ClearFileMetadataResult,
    "cache_file_metadata": lambda: ttypes.CacheFileMetadataResult(isSupported=False),
    "scheduled_query_poll": ttypes.ScheduledQueryPollResponse,
    "get_replication_metrics": lambda: ttypes.ReplicationMetricList(replicationMetricList=[]),
    "cm_recycle": ttypes.CmRecycleResponse,
    "add_runtime_stats": lambda: None,
    "refresh_privileges": lambda: ttypes.GrantRevokePrivilegeResponse(success=True),
    "get_materialization_invalidation_info": lambda: None,
}
"""Call → what it returns."""

_TRANSACTIONS = ("abort_txn", "commit_txn", "allocate_table_write_ids", "add_dynamic_partitions")


class AbsentCalls(Base):
    """Answers of all calls that no other class has."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the function that answers a call which no class has."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _EMPTY:
            make = _EMPTY[name]
            return lambda *_arguments: make()
        return lambda *_arguments: _refuse(name)


def _refuse(name: str) -> None:
    if name.startswith(_TRANSACTIONS):
        raise NoSuchTxnException("there are no transactions; tables of Calve are changed without them")
    if name.startswith("get_"):
        raise NoSuchObjectException(f"{name}: there is no such object, because Calve has none of its kind")
    raise MetaException(f"{name} is not supported: Calve has no objects of this kind")
