"""Builds of partition indexes in a thread of the server."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from catalog.catalog import Catalog
from catalog.errors import CatalogError
from catalog.indexes.building import RANGE_SIZE, ranges_to_do
from catalog.model import IndexState, PartitionIndex

log = logging.getLogger(__name__)


class IndexBuilds:
    """Builds the indexes that clients create, one after the other, as `Catalog.build_partition_index` does.

    A build that was killed with the server is continued when an owner asks for the state of the index, by any process.
    """

    def __init__(self, catalog: Catalog, maximum_partitions: int) -> None:
        """Prepare the thread, which starts with the first build.

        Args:
            maximum_partitions: An index with more partitions to build stays CREATING for the DAG
                `build_partition_index`.
        """
        self._catalog = catalog
        self._maximum = maximum_partitions
        self._executor = ThreadPoolExecutor(1, "calve-glue-index")
        self._lock = threading.Lock()
        self._asked: set[int] = set()

    def request(self, table: str, index: PartitionIndex) -> bool:
        """Have a CREATING index built, unless that is requested already; return whether the server will build it."""
        if index.state is not IndexState.CREATING:
            return False
        if len(ranges_to_do(self._catalog.storage, index)) * RANGE_SIZE > max(self._maximum, RANGE_SIZE):
            return False
        with self._lock:
            if index.id not in self._asked:
                self._asked.add(index.id)
                self._executor.submit(self._build, table, index)
        return True

    def _build(self, table: str, index: PartitionIndex) -> None:
        try:
            ended = self._catalog.build_partition_index(table, index.name)
            log.info("partition index %s of %s is %s", ended.name, table, ended.state)
        except CatalogError as error:
            log.warning("partition index %s of %s was not built: %s", index.name, table, error)
        except Exception:
            log.exception("partition index %s of %s was not built", index.name, table)
        finally:
            with self._lock:
                self._asked.discard(index.id)

    def close(self) -> None:
        """Finish the build that is running, and start no other."""
        self._executor.shutdown(cancel_futures=True)
