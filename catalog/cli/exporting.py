"""`calve sql --output`: the rows of a SELECT as a file, of which memory holds only a part."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

import click

from catalog.cli.statements import FORMATS, open_session
from catalog.errors import StatementError
from catalog.statements.model import Select
from catalog.statements.parser import parse_statement
from catalog.statements.results import Cell, RowStream, cell_as_text
from catalog.statements.session import Session
from catalog.statements.splitting import split

if TYPE_CHECKING:
    from typing import TextIO

_FORMAT_OF = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}


def export(script: str, path: Path, file_format: str | None, *, database: str, wait: timedelta) -> int:
    """Run a script with one SELECT, write its rows to a file, and return their number.

    The file appears, or takes the place of another, when it is complete.

    Args:
        file_format: One of `FORMATS`; None for that of the extension.

    Raises:
        UsageError: The script has no SELECT, or several; or the format is unknown.
        CatalogError: A statement failed; the file is as before.
    """
    file_format = file_format or _FORMAT_OF.get(path.suffix.lower())
    if file_format is None:
        raise click.UsageError(f"the extension of {path} names no format; add --format, one of {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path.parent}, the folder of the file, does not exist; create it")
    texts = [statement.text for statement in split(script)]
    selects = [number for number, text in enumerate(texts) if isinstance(_parsed(text), Select)]
    if len(selects) != 1:
        raise click.UsageError(f"--output takes the rows of one SELECT; the statements have {len(selects)}")
    write = _write_parquet if file_format == "parquet" else _write_csv if file_format == "csv" else _write_json
    row_count = 0
    with open_session(database, wait) as session:
        for number, text in enumerate(texts):
            if number == selects[0]:
                with _replaced(path) as unfinished:
                    row_count = write(session, text, unfinished)
            else:
                session.execute(text)
    return row_count


def _parsed(text: str) -> object:
    try:
        return parse_statement(text)
    except StatementError:
        # Reported when it runs, after the statements before it.
        return None


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """Yield a file in the same folder, which takes the place of the path if the block succeeds."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        unfinished = Path(file.name)
    try:
        yield unfinished
        # As any other file of the user; temporary files are private.
        mask = os.umask(0)
        os.umask(mask)
        unfinished.chmod(0o666 & ~mask)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_parquet(session: Session, query: str, path: Path) -> int:
    from pyarrow.parquet import ParquetWriter

    reader, row_count = session.stream_batches(query), 0
    with ParquetWriter(path, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            row_count += batch.num_rows
    return row_count


def _write_csv(session: Session, query: str, path: Path) -> int:
    return _write_lines(session, query, path, header=_csv_line, line=lambda columns, row: _csv_line(row))


def _write_json(session: Session, query: str, path: Path) -> int:
    return _write_lines(session, query, path, header=None, line=_json_line)


def _write_lines(
    session: Session,
    query: str,
    path: Path,
    *,
    header: Callable[[Sequence[Cell]], str] | None,
    line: Callable[[Sequence[str], Sequence[Cell]], str],
) -> int:
    stream, row_count = session.stream(query), 0
    assert isinstance(stream, RowStream)
    with path.open("w", encoding="utf-8", newline="") as file:
        if header is not None:
            _write_line(file, header(stream.columns))
        for row in stream.rows:
            _write_line(file, line(stream.columns, row))
            row_count += 1
    return row_count


def _write_line(file: TextIO, line: str) -> None:
    file.write(f"{line}\n")


def _json_line(columns: Sequence[str], row: Sequence[Cell]) -> str:
    return json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, allow_nan=False)


def _csv_line(row: Sequence[Cell]) -> str:
    return ",".join(map(_csv_cell, row))


def _csv_cell(cell: Cell) -> str:
    """Return a cell; null is an empty cell, and an empty string is one in quotes."""
    if cell is None:
        return ""
    text = cell_as_text(cell, "")
    needs_quotes = not text or any(sign in text for sign in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text
