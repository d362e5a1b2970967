"""OpenLineage: what tasks have read and written, by the names that other tools give to the same files and tables.

A dataset has the name of its storage, such as `s3://bucket` and `warehouse/shop/orders`, under which Spark, Hive and
others report it, too. A table's own name in the catalog, by which engines find it in Iceberg, is a symlink of it.

Source: OpenLineage's naming specification, https://openlineage.io/docs/spec/naming.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from catalog import Table

_CATALOG = "calve"
"""The name of the Iceberg catalog in which engines find the tables."""

_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}
_STORES = ("s3", "gs", "abfss", "wasbs")
_GLOB = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class LineageDataset:
    """Files, or a table, that a task has read or written.

    Attributes:
        namespace, name: Those of OpenLineage.
        table: `database.name`; None for files of no table.
        columns: Names and types of a table's columns and partition keys.
        rows, size_bytes: What was written; None if it is unknown.
    """

    namespace: str
    name: str
    table: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    rows: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class Lineage:
    """The datasets that a task has read and written."""

    inputs: list[LineageDataset] = field(default_factory=list)
    outputs: list[LineageDataset] = field(default_factory=list)


class LineageOperator(BaseOperator):
    """Task that reports to OpenLineage what it has read and written; its provider need not be installed.

    Attributes:
        lineage: What it has read and written; `execute` fills it.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lineage = Lineage()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage | None:
        """Return the datasets for OpenLineage's provider, which calls this after the task has succeeded.

        Returns:
            None without the provider.
        """
        try:
            from airflow.providers.openlineage.extractors import OperatorLineage
            from openlineage.client.event_v2 import InputDataset, OutputDataset
        except ImportError:
            return None
        return OperatorLineage(
            inputs=[
                InputDataset(dataset.namespace, dataset.name, facets=_facets(dataset))
                for dataset in dict.fromkeys(self.lineage.inputs)
            ],
            outputs=[
                OutputDataset(dataset.namespace, dataset.name, facets=_facets(dataset), outputFacets=_written(dataset))
                for dataset in dict.fromkeys(self.lineage.outputs)
            ],
        )


def table_dataset(table: Table, *, rows: int | None = None, size_bytes: int | None = None) -> LineageDataset:
    """Return the dataset of a table."""
    columns = tuple((column.name, column.type) for column in (*table.columns, *table.partition_keys))
    return LineageDataset(*dataset_name(table.location), table.full_name, columns, rows, size_bytes)


def source_datasets(sources: str | Iterable[str]) -> list[LineageDataset]:
    """Return the datasets of source files: of a glob, the folder above its first pattern."""
    named = [sources] if isinstance(sources, str) else sources
    return list(dict.fromkeys(LineageDataset(*dataset_name(_fixed_part(source))) for source in named))


def dataset_name(location: str) -> tuple[str, str]:
    """Return OpenLineage's namespace and name of a folder or file, without credentials and options of the location."""
    scheme, mark, _ = location.partition("://")
    if not mark or scheme.lower() == "file":
        path = location if not mark and not location.startswith("file:") else location.removeprefix("file:")
        return "file", posixpath.normpath("/" + path.lstrip("/"))
    parts = urlsplit(location)
    known = _SAME_SCHEMES.get(scheme.lower(), scheme.lower())
    # Of Azure, the part before the @ is the container.
    authority = parts.netloc if known in ("abfss", "wasbs") else parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/")
    return f"{known}://{authority}", (path.lstrip("/") if known in _STORES else path) or "/"


def _fixed_part(source: str) -> str:
    # Options, such as `?region=…`, are no pattern.
    scheme, mark, rest = source.partition("://")
    path = rest.partition("?")[0] if mark and "=" in rest.partition("?")[2] else rest
    pattern = _GLOB.search(path if mark else source)
    if pattern is None:
        return source
    fixed = (path if mark else source)[: pattern.start()].rpartition("/")[0]
    return f"{scheme}{mark}{fixed}" if mark else fixed or "/"


def _facets(dataset: LineageDataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset, symlinks_dataset

    facets: dict[str, Any] = {}
    if dataset.table is not None:
        identifier = symlinks_dataset.Identifier(_CATALOG, dataset.table, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([identifier])
    if dataset.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name, type_) for name, type_ in dataset.columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    return facets


def _written(dataset: LineageDataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    if dataset.rows is None and dataset.size_bytes is None:
        return {}
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=dataset.rows, size=dataset.size_bytes
    )
    return {"outputStatistics": statistics}
