"""Partitions in the shorter form of the protocol, in which those with one storage descriptor share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import MetaException

from catalog.doors.entries.storages import qualified
from catalog.doors.hms.exceptions import MissingArgumentException
from catalog.doors.hms.names import CATALOG
from catalog.metastores.types import HiveTable

_GROUPED = "hive.hcatalog.partition.spec.grouping.enabled"
"""Parameter of a table whose partitions are grouped by their storage descriptors."""


def to_specs(table: HiveTable, partitions: Sequence[Any]) -> list[Any]:
    """Return partitions in the shorter form, grouped if the table asks for it."""
    if table.parameters.get(_GROUPED, "").lower() != "true":
        return [_listed(table, partitions)]
    return grouped_specs(table, partitions)


def grouped_specs(table: HiveTable, partitions: Sequence[Any]) -> list[Any]:
    """Return partitions in the shorter form; those in the table's folder are grouped by their storage descriptors."""
    root = qualified(table.location) or ""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    elsewhere = []
    for partition in partitions:
        if (partition.sd.location or "").startswith(root):
            groups.setdefault(_kind_of(partition.sd), []).append(partition)
        else:
            elsewhere.append(partition)
    specs = [_shared(table, root, members) for members in groups.values()]
    return [*specs, _listed(table, elsewhere)] if elsewhere else specs


def from_specs(specs: Sequence[Any]) -> list[Any]:
    """Return the partitions that a client sends in the shorter form.

    Raises:
        MetaException: A part is missing.
    """
    partitions: list[Any] = []
    for spec in specs:
        if spec.partitionList is not None:
            partitions += spec.partitionList.partitions or []
        elif spec.sharedSDPartitionSpec is not None:
            partitions += _separate(spec)
        else:
            raise MetaException("a partition spec has neither partitions nor partitions of one storage; send one")
    return partitions


def _listed(table: HiveTable, partitions: Sequence[Any]) -> Any:
    return ttypes.PartitionSpec(
        dbName=table.name.database,
        tableName=table.name.name,
        rootPath=qualified(table.location),
        partitionList=ttypes.PartitionListComposingSpec(partitions=list(partitions)),
        catName=CATALOG,
    )


def _kind_of(descriptor: Any) -> tuple[Any, ...]:
    serde = descriptor.serdeInfo.serializationLib
    # Partitions of one storage share its columns.
    return descriptor.inputFormat, descriptor.outputFormat, serde, id(descriptor.cols)


def _shared(table: HiveTable, root: str, partitions: Sequence[Any]) -> Any:
    descriptor = ttypes.StorageDescriptor(**{**vars(partitions[0].sd), "location": root})
    members = [
        ttypes.PartitionWithoutSD(
            values=partition.values,
            createTime=partition.createTime,
            lastAccessTime=partition.lastAccessTime,
            relativePath=(partition.sd.location or "")[len(root) :],
            parameters=partition.parameters,
        )
        for partition in partitions
    ]
    return ttypes.PartitionSpec(
        dbName=table.name.database,
        tableName=table.name.name,
        rootPath=root,
        sharedSDPartitionSpec=ttypes.PartitionSpecWithSharedSD(partitions=members, sd=descriptor),
        catName=CATALOG,
    )


def _separate(spec: Any) -> list[Any]:
    shared = spec.sharedSDPartitionSpec
    if shared.sd is None:
        raise MissingArgumentException("storage descriptor of a partition spec")
    if not shared.sd.location:
        raise MetaException("the storage descriptor of a partition spec has no location; send one")
    partitions = []
    for member in shared.partitions or []:
        # As Hive, which writes a missing path as this word.
        place = f"{shared.sd.location}{'null' if member.relativePath is None else member.relativePath}"
        partitions.append(
            ttypes.Partition(
                values=member.values,
                dbName=spec.dbName,
                tableName=spec.tableName,
                catName=spec.catName,
                createTime=member.createTime,
                lastAccessTime=member.lastAccessTime,
                sd=ttypes.StorageDescriptor(**{**vars(shared.sd), "location": place}),
                parameters=member.parameters,
            )
        )
    return partitions
