"""The attributes that the methods of `Catalog` are built on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from catalog.model import Table
from catalog.operations.journal import Operations
from catalog.storage import Storage
from catalog.tables.definitions import Definitions

if TYPE_CHECKING:
    from catalog.advice.proposals import Proposals
    from catalog.datafiles.committing import Committer
    from catalog.datafiles.rolling_back import RollBacks
    from catalog.importing.imports import Imports
    from catalog.loading.loading import Loading
    from catalog.loading.quality_results import QualityResults
    from catalog.loading.repairing import Repairs
    from catalog.maintenance.maintenance import Maintenance
    from catalog.migration.migrations import Migrations
    from catalog.migration.states import MigrationStates
    from catalog.operations.approvals import Approvals
    from catalog.operations.metastore_locks import MetastoreLocks
    from catalog.operations.outcomes import Outcomes
    from catalog.partitions.announcing import Announcements
    from catalog.partitions.browsing import Browsing
    from catalog.partitions.entries import PartitionEntries
    from catalog.partitions.indexing import Indexing
    from catalog.partitions.paging import PartitionPages
    from catalog.partitions.previews import Previews
    from catalog.partitions.scanning import Scanner
    from catalog.partitions.statistics import ColumnStatistics
    from catalog.partitions.waiting import PartitionWaits
    from catalog.rebalancing.rebalancing import Rebalancing
    from catalog.tables.entries import TableEntries
    from catalog.tables.functions import Functions
    from catalog.tables.table_versions import TableVersions


class Core:
    """The storage of a catalog, its definitions and its journal, and what works on them, created on first use."""

    def __init__(self, storage: Storage, warehouse: str | None) -> None:
        """Create the catalog over a storage; use `Catalog.open` instead where possible."""
        self.storage = storage
        self._definitions = Definitions(storage, warehouse)
        self._definitions.follow_files = _follow_files
        self.operations = Operations(storage)
        self.searched: Callable[[str, bool], None] | None = None
        """Called for each search by an expression, with `database.table` and whether an index answers it."""

    @cached_property
    def approvals(self) -> Approvals:
        """Approvals of deletions, with the persons who gave them."""
        from catalog.operations.approvals import Approvals

        return Approvals(self.storage)

    @cached_property
    def loading(self) -> Loading:
        """Loads of source files."""
        from catalog.loading.loading import Loading

        return Loading(self.storage, self._definitions, self.operations)

    @cached_property
    def quality(self) -> QualityResults:
        """Results of quality checks."""
        from catalog.loading.quality_results import QualityResults

        return QualityResults(self.storage, self._definitions, self.operations)

    @cached_property
    def outcomes(self) -> Outcomes:
        """Outcomes of operations that are still to be reported."""
        from catalog.operations.outcomes import Outcomes

        return Outcomes(self.storage)

    @cached_property
    def proposals(self) -> Proposals:
        """The advisor's latest proposals for each table."""
        from catalog.advice.proposals import Proposals

        return Proposals(self.storage, self._definitions)

    @cached_property
    def rebalancing(self) -> Rebalancing:
        """Changes of the partitions of tables with a partition scheme."""
        from catalog.rebalancing.rebalancing import Rebalancing

        return Rebalancing(self.storage, self._definitions, self.operations)

    @cached_property
    def roll_backs(self) -> RollBacks:
        """Roll-backs of published tables to earlier snapshots."""
        from catalog.datafiles.rolling_back import RollBacks

        return RollBacks(self.storage, self._definitions, self.operations)

    @cached_property
    def migrations(self) -> Migrations:
        """Migrations of Hive tables to Iceberg, and reverts."""
        from catalog.migration.migrations import Migrations

        return Migrations(self.storage, self._definitions, self.operations)

    @cached_property
    def migration_states(self) -> MigrationStates:
        """How far each table is on its way from Hive to Iceberg."""
        from catalog.migration.states import MigrationStates

        return MigrationStates(self.storage, self.migrations)

    @cached_property
    def announcements(self) -> Announcements:
        """Changed partitions that are still to be announced."""
        from catalog.partitions.announcing import Announcements

        return Announcements(self.storage, self._definitions)

    @cached_property
    def browsing(self) -> Browsing:
        """Pages, groups, days and files of partitions, for people who look at them."""
        from catalog.partitions.browsing import Browsing

        return Browsing(self.storage, self._definitions, self._scanner)

    @cached_property
    def _pages(self) -> PartitionPages:
        """Pages of partitions."""
        from catalog.partitions.paging import PartitionPages

        return PartitionPages(self.storage, self._definitions, self._scanner)

    @cached_property
    def waits(self) -> PartitionWaits:
        """Questions of those who wait for partitions."""
        from catalog.partitions.waiting import PartitionWaits

        return PartitionWaits(self.storage, self._definitions, self._scanner)

    @cached_property
    def committer(self) -> Committer:
        """Commits of the files that jobs have written into tables with a partition scheme."""
        from catalog.datafiles.committing import Committer

        return Committer(self.storage, self._definitions, self.operations)

    @cached_property
    def maintenance(self) -> Maintenance:
        """Removal of obsolete files and records."""
        from catalog.maintenance.maintenance import Maintenance

        return Maintenance(self.storage, self._definitions, self.operations, self.loading)

    @cached_property
    def imports(self) -> Imports:
        """Imports of tables from Hive Metastores and Glue."""
        from catalog.importing.imports import Imports

        return Imports(self.storage, self._definitions, self.operations)

    @cached_property
    def table_entries(self) -> TableEntries:
        """Tables and databases as metastores' protocols define them."""
        from catalog.tables.entries import TableEntries

        return TableEntries(self.storage, self._definitions, self.operations)

    @cached_property
    def table_versions(self) -> TableVersions:
        """Former definitions of tables that metastores' protocols have changed."""
        from catalog.tables.table_versions import TableVersions

        return TableVersions(self.storage)

    @cached_property
    def partition_entries(self) -> PartitionEntries:
        """Changes of partitions by metastores' protocols."""
        from catalog.partitions.entries import PartitionEntries

        return PartitionEntries(self.storage, self._definitions, self.operations)

    @cached_property
    def column_statistics(self) -> ColumnStatistics:
        """Statistics of columns that engines have computed."""
        from catalog.partitions.statistics import ColumnStatistics

        return ColumnStatistics(self.storage, self._definitions)

    @cached_property
    def functions(self) -> Functions:
        """Functions that engines register."""
        from catalog.tables.functions import Functions

        return Functions(self.storage, self._definitions)

    @cached_property
    def metastore_locks(self) -> MetastoreLocks:
        """Locks of clients of the Hive Metastore's protocol."""
        from catalog.operations.metastore_locks import MetastoreLocks

        return MetastoreLocks(self.storage)

    @cached_property
    def previews(self) -> Previews:
        """Bounded searches for people who write filters: what they read, values of keys, and better indexes."""
        from catalog.partitions.previews import Previews

        return Previews(self.storage, self._definitions, self._scanner)

    @cached_property
    def _repairs(self) -> Repairs:
        """Repairs of tables by their folders."""
        from catalog.loading.repairing import Repairs

        return Repairs(self.storage, self._definitions, self.operations, self.loading)

    @cached_property
    def _scanner(self) -> Scanner:
        """Searches of partitions."""
        from catalog.partitions.scanning import Scanner

        return Scanner(self.storage, self._definitions)

    @cached_property
    def _indexing(self) -> Indexing:
        """Partition indexes."""
        from catalog.partitions.indexing import Indexing

        return Indexing(self.storage, self._definitions)


def _follow_files(
    connection: Connection, definitions: Definitions, table: Table, added: Sequence[Any], removed: Sequence[str]
) -> object:
    # Imported late, as PyIceberg.
    from catalog.partitions.records import follow_files

    return follow_files(connection, definitions, table, added, removed)
