"""Statistics of the footer of a single Parquet file, without a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from catalog.datafiles.files import NewFile
from catalog.datafiles.footers import footer_statistics
from catalog.files.filesystem import FileInfo
from catalog.iceberg.footers.parquet_footers import FooterParser
from catalog.types.key_types import KeyType


def read_footer(folder: Path | str, path: str, partition_id: int, columns: Mapping[str, KeyType]) -> NewFile:
    target = Path(folder, path)
    footer = FooterParser().read(FileInfo(str(target), target.stat().st_size, 0))
    return NewFile(partition_id, path, footer.row_count, target.stat().st_size, footer_statistics(footer, columns))
