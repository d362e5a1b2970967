"""The places at which an operation can be killed: calls of `reached` in the code, and the tests that kill there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from catalog.operations.failpoints import Point

REPOSITORY = Path(__file__).parents[2]
_CODE = ("catalog", "spark_jobs", "plugins", "standalone")

_PUBLISHED = (
    "catalog.loading.publishing Publication.reserve: partly-reserved",
    "catalog.loading.loading Loading._publish: reserved",
    "catalog.loading.publishing Publication._move: partly-moved",
    "catalog.loading.loading Loading._publish: moved",
    "catalog.loading.loading Loading._finish: changed",
    "catalog.loading.loading Loading._publish: committed",
)
PLACES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("load merge", "hive"): (
        "catalog.operations.journal Operations.begin: journaled",
        "catalog.operations.jobs Jobs.attempt: started",
        *_PUBLISHED,
    ),
    ("delete", "iceberg"): (
        "spark_jobs.writing.snapshot_files write_partition_files: files-written",
        "catalog.loading.loading Loading._publish_snapshot: committed",
    ),
    ("compact", "range"): (
        "spark_jobs.writing.scheme_files write_rows: files-written",
        "catalog.datafiles.manifest write_manifest: listed",
        "catalog.datafiles.manifest write_manifest: manifest-written",
        "catalog.datafiles.committing Committer.commit: changed",
        "catalog.datafiles.committing Committer.commit: committed",
    ),
    ("remove", "hive"): ("catalog.loading.loading Loading.remove: changed",),
    ("forget", "iceberg"): (
        "spark_jobs.changing.forgetting forget_rows: files-deleted",
        "spark_jobs.changing.iceberg_forgetting finish_search: changed",
    ),
}
"""Places of the matrix of `tests/killed`, each by the first of the operations that pass it, and its table's format."""

ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "tests/catalog/partitions/test_bounded_work.py": (
        "catalog.catalog.databases DatabaseMethods.drop_database: committed",
        "catalog.catalog.tables TableMethods.drop_table: committed",
        "catalog.partitions.changing drop_partitions_in_batches: partly-committed",
        "catalog.tables.dropping finish_drop: partly-committed",
    ),
    "tests/catalog/datafiles/test_conversion.py": (
        "catalog.datafiles.conversion publish_earlier: manifest-written",
        "catalog.datafiles.conversion publish_earlier: changed",
        "catalog.datafiles.conversion publish_earlier: committed",
    ),
    "tests/catalog/datafiles/test_intake.py": (
        "catalog.datafiles.intake catch_up: changed",
        "catalog.datafiles.intake catch_up: committed",
    ),
    "tests/catalog/datafiles/test_rolling_back.py": (
        "catalog.datafiles.rolling_back RollBacks._run: changed",
        "catalog.datafiles.rolling_back RollBacks._run: committed",
    ),
    "tests/catalog/importing/test_imports.py": (
        "catalog.importing.changes PartitionChanges.add: changed",
        "catalog.importing.changes PartitionChanges.add: partly-committed",
        "catalog.importing.changes PartitionChanges.drop: changed",
        "catalog.importing.changes PartitionChanges.drop: partly-committed",
        "catalog.importing.changes PartitionChanges.update: changed",
        "catalog.importing.changes PartitionChanges.update: partly-committed",
        "catalog.importing.imports Imports._import: committed",
    ),
    "tests/catalog/loading/test_publishing.py": (
        "catalog.loading.loading Loading.discard_staging: withdrawn",
        "catalog.loading.publishing withdraw: moves-undone",
        "catalog.loading.publishing withdraw: staged-data-deleted",
        "catalog.maintenance.staging discard_old_staging: withdrawn",
    ),
    "tests/catalog/loading/test_snapshots.py": (
        "catalog.loading.snapshots SnapshotPublication.set_aside: moved",
        "catalog.partitions.snapshots drop_partition_files: changed",
        "catalog.partitions.snapshots drop_partition_files: partly-committed",
    ),
    "tests/catalog/loading/test_replacing.py": (
        "catalog.maintenance.versions Versions._copy: files-copied",
        "catalog.maintenance.versions Versions._copy: files-deleted",
        "catalog.maintenance.versions Versions._delete: files-deleted",
        "catalog.maintenance.versions Versions._settle: changed",
    ),
    "tests/catalog/tables/test_moving.py": (
        "catalog.tables.moving FolderMoves._journal: journaled",
        "catalog.tables.moving FolderMoves.run: committed",
        "catalog.tables.moving _move: changed",
        "catalog.tables.moving _move: moved",
        "catalog.tables.moving _move: partly-moved",
    ),
    "tests/catalog/maintenance/test_snapshots.py": (
        "catalog.maintenance.former_files _Deletion.run: files-deleted",
        "catalog.maintenance.snapshots _queue_others_files: partly-committed",
        "catalog.maintenance.snapshots expire_table: changed",
        "catalog.maintenance.snapshots expire_table: committed",
    ),
    "tests/catalog/migration/test_killed_migrations.py": (
        "catalog.migration.flipping Flipper._append: committed",
        "catalog.migration.flipping Flipper._append: metadata-written",
        "catalog.migration.flipping Flipper._end: changed",
        "catalog.migration.flipping Flipper.flip: committed",
        "catalog.migration.flipping Flipper.revert: committed",
        "catalog.migration.migrations Migrations.record_staged: metadata-written",
        "catalog.migration.staging write_staged: staged",
    ),
    "tests/spark_jobs/changing/test_killed_changes.py": (
        "catalog.datafiles.committing Committer.commit_metadata: changed",
        "catalog.datafiles.committing Committer.commit_metadata: committed",
        "spark_jobs.changing.iceberg_changes _changed: files-written",
    ),
    "tests/spark_jobs/changing/test_iceberg_forgetting.py": (
        "spark_jobs.changing.iceberg_forgetting _remove: files-deleted",
    ),
    "tests/support/killed_upkeep.py": (
        "catalog.maintenance.iceberg_files delete_superseded: files-deleted",
        "spark_jobs.maintain_iceberg _run: committed",
    ),
}
"""Places that the matrix need not pass, by the file of the tests that kill there."""


def places_of_the_code() -> set[str]:
    """Return all places, each as the module, the function and the point."""
    found = set[str]()
    for path in (path for folder in _CODE for path in Path(REPOSITORY, folder).rglob("*.py")):
        if "reached(" in (text := path.read_text()):
            module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            found.update(f"{module} {place}" for place in _places(ast.parse(text), ()))
    return found


def _places(node: ast.AST, names: tuple[str, ...]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "reached":
            (point,) = child.args
            assert isinstance(point, ast.Attribute), f"{ast.unparse(child)} names no point"
            yield f"{'.'.join(names)}: {Point[point.attr]}"
        own = (*names, child.name) if isinstance(child, ast.FunctionDef | ast.ClassDef) else names
        yield from _places(child, own)
