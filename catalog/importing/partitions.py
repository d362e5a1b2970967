"""Import of the partitions of one table, in batches, with bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from tempfile import TemporaryFile

from sqlalchemy import Connection

from catalog.errors import InvalidRequestError
from catalog.importing.changes import KnownPartitions, PartitionChanges, Refusal, location_of
from catalog.importing.definition import Partitions
from catalog.importing.reports import PartitionCounts
from catalog.metastores.types import HivePartition
from catalog.model import NewPartition, Table
from catalog.partitions.seen import Seen
from catalog.partitions.spooling import PartitionFile
from catalog.settings.places import find_forbidden
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.tables.definitions import Definitions

BATCH = 10_000
"""The number of partitions in one transaction."""

WAITING = 10_000
"""The maximum number of partitions with folders in use that are tried again after all others, in one transaction."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import.

    Attributes:
        updates: Update definitions that differ from the source.
        drops_vanished: Drop partitions that the source does not have; their files stay.
        is_dry_run: Only report the changes, without checking whether folders are in use.
        confirm_drop: Called with the digest of the vanished partitions (`PartitionCounts.vanished_digest`) before any
            is dropped; raises to refuse.
    """

    updates: bool = False
    drops_vanished: bool = False
    is_dry_run: bool = False
    confirm_drop: Callable[[str], object] | None = None


class PartitionImport:
    """One attempt at importing the partitions of one table."""

    def __init__(
        self,
        storage: Storage,
        definitions: Definitions,
        table: Table,
        options: ImportOptions,
        *,
        guard: Callable[[Connection], None],
        beat: Callable[[int], None],
    ) -> None:
        """Set the table.

        Args:
            guard: Called in each transaction; raises if this attempt is fenced.
            beat: Called with the number of partitions read so far, to send a heartbeat.
        """
        self._storage = storage
        self._table = table
        self._options = options
        self._beat = beat
        self._seen = Seen(storage, table)
        self._known = KnownPartitions(table)
        self.counts = PartitionCounts()
        lacking = ["drop vanished partitions"] * (not options.drops_vanished)
        lacking += ["update changed ones"] * (not options.updates)
        hint = f"; if the source moved the folder from one partition to another, ask to {' and '.join(lacking)}"
        self._changes = PartitionChanges(storage, definitions, self._known, self.counts, guard, hint if lacking else "")

    def __call__(self, pages: Iterable[Sequence[HivePartition]], made: Partitions) -> PartitionCounts:
        """Compare a source's partitions with the catalog's; then drop, update and add partitions, in this order.

        The order frees folders before other partitions need them. Differences are buffered in files, so that the source
        is read once with bounded memory.
        """
        with TemporaryFile(prefix="calve-") as changed_file, TemporaryFile(prefix="calve-") as new_file:
            changed, new = PartitionFile(changed_file), PartitionFile(new_file)
            for batch in batched(self._readable(pages, made), BATCH):
                self._compare(batch, changed, new)
                self._beat(self.counts.seen)
            self._find_vanished()
            if not self._options.is_dry_run:
                self._apply(changed, new)
        return self.counts

    def _readable(self, pages: Iterable[Sequence[HivePartition]], made: Partitions) -> Iterator[NewPartition]:
        for page in pages:
            for partition in page:
                self.counts.seen += 1
                try:
                    yield made.of(partition)
                except InvalidRequestError as error:
                    self._seen.add([self._known.encoder.identity(partition.values)])
                    self.counts.refused.add(str(error))

    # --- comparing ----------------------------------------------------------------------------------------------

    def _compare(self, batch: Sequence[NewPartition], changed: PartitionFile, new: PartitionFile) -> None:
        encoded = self._known.encoder.encode_all([partition.values for partition in batch])
        self._seen.add(encoded.identities)
        with self._storage.read() as connection:
            rows = self._known.rows(connection, encoded.identities)
        forbidden = dict(find_forbidden(self._table, [location_of(partition) for partition in batch]))
        added: dict[bytes, NewPartition] = {}
        differing = []
        for partition, identity, packed in zip(batch, encoded.identities, encoded.packed, strict=True):
            row = rows.get(identity)
            if (row is None and identity in added) or (row is not None and row.packed_values != packed):
                self._changes.refuse_twin(partition, row)
            elif partition.location in forbidden and (row is None or self._known.is_moved(row, partition)):
                self._changes.refuse(partition, forbidden[partition.location])
            elif row is None:
                added[identity] = partition
            elif self._known.differs(row, partition):
                differing.append(partition)
                self.counts.changed.add(self._known.name(partition))
        changed.append(differing)
        new.append(list(added.values()))
        if self._options.is_dry_run:
            self.counts.added += len(added)

    def _apply(self, changed: PartitionFile, new: PartitionFile) -> None:
        waiting: list[Refusal] = []
        for batch in batched(changed if self._options.updates else (), BATCH):
            waiting += self._changes.update(batch)
            for partition, error in waiting[WAITING:]:
                self._changes.refuse(partition, error)
            del waiting[WAITING:]
            self._beat(self.counts.seen)
        # Try again: later batches may have freed the folders.
        for partition, error in self._changes.update([partition for partition, _ in waiting]) if waiting else ():
            self._changes.refuse(partition, error)
        for batch in batched(new, BATCH):
            self._changes.add(batch)
            self._beat(self.counts.seen)

    # --- what the source does not have --------------------------------------------------------------------------

    def _find_vanished(self) -> None:
        """Count the partitions that the source does not have, and drop them if requested."""
        vanished: list[Sequence[int]] = []
        for missing in self._seen.lacking(BATCH):
            for partition in missing:
                self.counts.vanished.add(self._table.partition_name(partition.packed_values))
            if missing:
                vanished.append(array("q", [partition.id for partition in missing]))
            self._beat(self.counts.seen)
        if vanished:
            self._drop(vanished)

    def _drop(self, vanished: Sequence[Sequence[int]]) -> None:
        """Compute the digest of the vanished partitions; if requested, confirm and drop them in batches."""
        digest = sha256(f"{self._table.id}".encode())
        for ids in vanished:
            digest.update(b"".join(b",%d" % partition_id for partition_id in ids))
        self.counts.vanished_digest = digest.hexdigest()
        if not self._options.drops_vanished or self._options.is_dry_run:
            return
        if self._options.confirm_drop is not None:
            self._options.confirm_drop(self.counts.vanished_digest)
        for ids in vanished:
            self._changes.drop(ids)
            self._beat(self.counts.seen)
