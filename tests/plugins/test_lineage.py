"""Datasets for OpenLineage, by the names that other tools give them; with its provider, or else as it is documented."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from calve_airflow.lineage import LineageDataset, LineageOperator, dataset_name, source_datasets, table_dataset
from catalog import Catalog

IS_INSTALLED = find_spec("openlineage") is not None


@dataclass
class _Named:
    namespace: str
    name: str
    facets: dict[str, Any] = field(default_factory=dict)
    outputFacets: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Lineage:
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


@dataclass
class _Identifier:
    namespace: str
    name: str
    type: str


@dataclass
class _Identifiers:
    identifiers: list[_Identifier]


@dataclass
class _Field:
    name: str
    type: str


@dataclass
class _Fields:
    fields: list[_Field]


@dataclass
class _Statistics:
    rowCount: int | None = None
    size: int | None = None


DOCUMENTED = {
    "airflow.providers.openlineage.extractors": {"OperatorLineage": _Lineage},
    "openlineage.client.event_v2": {"InputDataset": _Named, "OutputDataset": _Named},
    "openlineage.client.facet_v2.schema_dataset": {"SchemaDatasetFacet": _Fields, "SchemaDatasetFacetFields": _Field},
    "openlineage.client.facet_v2.symlinks_dataset": {"SymlinksDatasetFacet": _Identifiers, "Identifier": _Identifier},
    "openlineage.client.facet_v2.output_statistics_output_dataset": {"OutputStatisticsOutputDatasetFacet": _Statistics},
}
"""The classes that the provider and the client document, with the fields that are used."""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenLineage's provider and client, or what their documentation says of them."""
    if IS_INSTALLED:
        return
    for path, classes in DOCUMENTED.items():
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name in ("airflow", "airflow.providers") or name in sys.modules:
                continue
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
            parent = sys.modules[name.rpartition(".")[0]] if end > 1 else None
            if parent is not None:
                monkeypatch.setattr(parent, parts[end - 1], sys.modules[name], raising=False)
        vars(sys.modules[path]).update(classes)


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/data/warehouse/orders/", "file", "/data/warehouse/orders"),
        ("file:///data/orders", "file", "/data/orders"),
        ("file:/data/orders", "file", "/data/orders"),
        ("s3://lake/shop/orders", "s3://lake", "shop/orders"),
        ("s3a://lake/shop/orders/", "s3://lake", "shop/orders"),
        ("s3://key:secret@lake/shop?region=eu-west-1", "s3://lake", "shop"),
        ("s3://lake", "s3://lake", "/"),
        ("gcs://lake/shop", "gs://lake", "shop"),
        (
            "abfs://lake@account.dfs.core.windows.net/shop/orders",
            "abfss://lake@account.dfs.core.windows.net",
            "shop/orders",
        ),
        ("hdfs://node:8020/shop/orders", "hdfs://node:8020", "/shop/orders"),
    ],
)
def test_a_location_has_the_name_of_its_storage(location: str, namespace: str, name: str) -> None:
    assert dataset_name(location) == (namespace, name)


@pytest.mark.skipif(not IS_INSTALLED, reason="OpenLineage's client is not installed")
def test_names_are_those_of_the_client() -> None:
    from openlineage.client.naming import dataset as naming

    for location, named in (
        ("s3a://lake/shop/orders", naming.S3("lake", "shop/orders")),
        ("gs://lake/shop/orders", naming.GCS("lake", "shop/orders")),
        ("hdfs://node:8020/shop/orders", naming.HDFS("node", "8020", "/shop/orders")),
        ("abfss://lake@account.dfs.core.windows.net/shop", naming.ABFSS("lake", "account", "shop")),
        ("/shop/orders", naming.LocalFileSystem("/shop/orders")),
    ):
        assert dataset_name(location) == (named.get_namespace(), named.get_name())


@pytest.mark.parametrize(
    ("sources", "named"),
    [
        ("/in/orders.csv", [("file", "/in/orders.csv")]),
        ("/in/2024-*/part?.csv", [("file", "/in")]),
        ("s3://in/{a,b}/x.csv", [("s3://in", "/")]),
        ("s3://in/a/x.csv?region=eu", [("s3://in", "a/x.csv")]),
        (["/in/a/*.csv", "/in/a/*.json", "/in/b"], [("file", "/in/a"), ("file", "/in/b")]),
    ],
)
def test_sources_are_the_folders_above_their_patterns(sources: Any, named: Any) -> None:
    assert [(dataset.namespace, dataset.name) for dataset in source_datasets(sources)] == named


def lineage_of(operator: LineageOperator) -> Any:
    """Return what the provider gets from a task; its own extractor asks if it is installed."""
    if not IS_INSTALLED:
        return operator.get_openlineage_facets_on_complete(None)
    from airflow.providers.openlineage.extractors.base import DefaultExtractor

    return DefaultExtractor(operator).extract_on_complete(None)


def test_a_task_reports_its_datasets(provider: None, catalog: Catalog) -> None:
    table = catalog.get_table("demo.flights")
    operator = LineageOperator(task_id="load")
    operator.lineage.inputs.extend(source_datasets("/in/*.csv") * 2)
    operator.lineage.outputs.append(table_dataset(table, rows=7, size_bytes=100))
    lineage = lineage_of(operator)
    assert [(dataset.namespace, dataset.name, dataset.facets) for dataset in lineage.inputs] == [("file", "/in", {})]
    (output,) = lineage.outputs
    assert (output.namespace, output.name) == ("file", table.location)
    (identifier,) = output.facets["symlinks"].identifiers
    assert (identifier.namespace, identifier.name, identifier.type) == ("calve", "demo.flights", "TABLE")
    columns = [(column.name, column.type) for column in output.facets["schema"].fields]
    assert columns == [("delay", "int"), ("carrier", "string"), ("month", "int")]
    statistics = output.outputFacets["outputStatistics"]
    assert (statistics.rowCount, statistics.size) == (7, 100)


@pytest.mark.skipif(IS_INSTALLED, reason="OpenLineage's client is installed")
def test_without_the_provider_a_task_reports_nothing() -> None:
    operator = LineageOperator(task_id="load")
    operator.lineage.outputs.append(LineageDataset("file", "/out"))
    assert operator.get_openlineage_facets_on_complete(None) is None
