"""The YAML list of tables that Calve loads on a schedule: their definitions, sources and quality rules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from croniter import croniter

from catalog.errors import CatalogError, InvalidConfigurationError
from catalog.errors.base import did_you_mean
from catalog.model import ICEBERG, READABLE_FORMATS, LoadMode
from catalog.model.identifiers import TableName, normalise_identifier, require_text
from catalog.settings.compaction_rules import CompactionRules
from catalog.settings.contracts import Contract
from catalog.settings.entry_fields import check_column_type, check_quality, read_indexes, read_texts, read_types
from catalog.settings.environment import state_folder, tables_path
from catalog.settings.fields import require_known, text, texts
from catalog.settings.load_keys import key_of_text, read_keys, written_keys
from catalog.settings.merge_rules import MergeRule
from catalog.settings.notify_rules import NotifyRules
from catalog.settings.problems import Problems
from catalog.settings.reader_options import DEFAULT_OPTIONS, check_encoding, check_reader_options, overridden
from catalog.settings.rebalance_rules import RebalanceRules
from catalog.settings.spark_conf import run_spark_conf, table_spark_conf
from catalog.settings.yaml_entries import read_entries

SOURCE_FORMATS = ("csv", "json", "parquet", "orc", "avro")
INVALID_PARTITIONS = ("fail", "skip")
BAD_FILES = ("fail", "skip")
NULL_KEYS = ("refuse", "allow")
MODES = tuple(map(str, LoadMode))
SCHEDULES = ("@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
_CRON = re.compile(r"\s*[^\s@]+(\s+\S+){4,6}\s*")
_CONNECTION = re.compile(r"[\w.-]{0,200}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class TableConfig:
    """A table of the list.

    Attributes:
        table: `database.table`.
        source: File, folder or glob of the raw files; optional if the entry has `rebalance` or `compaction`.
        source_options: Options of Spark's reader, for instance `{"header": "true", "sep": ";"}`; those of the list are
            added to the defaults.
        keys: Partition keys and their types, in the order of the path; optional for an existing table.
        key_expressions: The keys that are computed, and the Spark SQL expressions over the columns of the files; no
            field of its own in the list, where `keys` has them.
        columns: Types of other columns; those not listed are inferred by the first load.
        required: Columns that each source file has to have, without nulls; others may be missing, and are null.
        contract: The treatment of unknown `columns`, and of unfit `types` (`catalog.settings.contracts.Contract`).
        format: Of the data files; `iceberg` for an Iceberg table whose data files are Parquet.
        indexes: Partition indexes that the table should have, with their keys.
        schedule: Cron expression or preset; None to load only when triggered.
        invalid_partitions: How to treat rows whose partition an index refuses: `fail` the load, or `skip` them (they
            are set aside and reported).
        bad_files: Whether a file that cannot be loaded makes the load `fail`, or is set aside and reported (`skip`).
        null_keys: Whether rows with null as a partition key `refuse` the load, or are loaded (`allow`).
        mode: What a load may do to existing partitions (`LoadMode`); empty for the default of the table's format.
        merge: With the mode `merge`: `keys`, the columns that identify a row; `order`, the column by which the latest
            row is found; `delete`, a condition on rows that are deleted (`catalog.settings.merge_rules.MergeRule`).
        rebalance: When the DAG `rebalance_advisor` proposes to rebalance partitions, whether its proposals are
            applied at once, and whether a person must approve all changes
            (`catalog.settings.rebalance_rules.RebalanceRules`): `{apply: true, split_factor: 4}`.
        compaction: When the DAG `compact_partitions` compacts partitions (`catalog.settings.compaction_rules`); None
            for never.
        spark: Spark's configuration for loads of the table, for instance `{spark.executor.memory: 4g}`; no secrets.
        connection: The Airflow connection of the Spark cluster for loads of the table; empty for `spark_default`.
        notify: The Airflow notifiers that are called for failures, approvals that wait, and failed quality checks
            (`catalog.settings.notify_rules.NotifyRules`).
    """

    table: str
    source: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    source_format: str = "csv"
    source_options: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_OPTIONS))
    columns: Mapping[str, str] = field(default_factory=dict)
    required: Sequence[str] = ()
    contract: Mapping[str, str] = field(default_factory=dict)
    format: str = "parquet"
    indexes: Mapping[str, list[str]] = field(default_factory=dict)
    schedule: str | None = None
    invalid_partitions: str = "fail"
    bad_files: str = "fail"
    null_keys: str = "refuse"
    mode: str = ""
    merge: Mapping[str, Any] = field(default_factory=dict)
    quality: Mapping[str, Any] = field(default_factory=dict)
    rebalance: Mapping[str, Any] = field(default_factory=dict)
    compaction: Mapping[str, Any] | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    connection: str = ""
    key_expressions: Mapping[str, str] = field(default_factory=dict)
    notify: Mapping[str, Any] = field(default_factory=dict)

    def job_request(self) -> dict[str, Any]:
        """Return the fields of a load's Spark jobs that do not depend on the run (`SourceJob`)."""
        return {
            "table": self.table,
            "source_format": self.source_format,
            "source_options": dict(self.source_options),
            "columns": [list(column) for column in self.columns.items()],
            "keys": [list(key) for key in self.keys.items()],
            "format": self.format,
            "indexes": dict(self.indexes),
            "invalid_partitions": self.invalid_partitions,
            "mode": self.mode,
            "required": list(self.required),
            "bad_files": self.bad_files,
            "null_keys": self.null_keys,
            "merge": dict(self.merge),
            "key_expressions": dict(self.key_expressions),
            "contract": dict(self.contract),
        }

    def load_settings(self, *, dry_run: bool) -> dict[str, Any]:
        """Return the settings that a load journals for its steps, as JSON values (`Loading.settings_of`)."""
        return {
            "request": {**self.job_request(), "dry_run": dry_run},
            "quality": {"table": self.table, "rules": dict(self.quality)},
            "indexes": dict(self.indexes),
            "spark": {"conf": dict(self.spark), "connection": self.connection},
        }


def configured_load(form: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> TableConfig:
    """Return the configuration of a load: the table's entry, overridden by the fields of a form.

    Args:
        form: `table`, and optionally `source`, `source_format`, `bad_files`, `invalid_partitions`, `null_keys`,
            `mode`, `contract_columns` and `contract_types`, `spark_conf` (which overrides single settings of the
            entry), and `keys` as a list of strings such as `day date` or `day to_date(ordered_at)`, in order; `dry_run`
            and `reload` are for the caller.
        options: Further fields of an entry, for callers that are no forms: `merge`, and single members of `columns`
            and `source_options`.

    Raises:
        InvalidConfigurationError: The source is missing, or a field is invalid.
        WrongFieldError: The form has another field; everything else is configured by the list.
    """
    require_known(form, ("table", *_FORM_FIELDS, *_CONTRACT_FIELDS, "keys", "spark_conf", "dry_run", "reload"))
    name = str(TableName.parse(str(form.get("table", ""))))
    listed = listed_entry(name)
    entry: dict[str, Any] = {}
    if listed is not None:
        entry = {field_name: getattr(listed, field_name) for field_name in _FIELDS}
        entry["keys"] = written_keys(listed.keys, listed.key_expressions)
    entry |= {field_name: text(field_name, form[field_name]) for field_name in _FORM_FIELDS if field_name in form}
    if "keys" in form:
        entry["keys"] = dict(key_of_text(f"table {name}", text) for text in texts("keys", form["keys"]))
    for field_name, part in _CONTRACT_FIELDS.items():
        if field_name in form:
            entry["contract"] = {**entry.get("contract", {}), part: text(field_name, form[field_name])}
    if "spark_conf" in form:
        entry["spark"] = {**entry.get("spark", {}), **run_spark_conf("spark_conf", form["spark_conf"])}
    for option, value in (options or {}).items():
        is_added = option in ("columns", "source_options")
        entry[option] = overridden(entry.get(option, {}), value) if is_added else value
    if not entry.get("source"):
        raise InvalidConfigurationError(
            f"table {name} is not in {tables_path()}; give its source, and its keys if it is new"
        )
    return _table_config(f"table {name}", name, entry)


def listed_entry(table: str) -> TableConfig | None:
    """Return the entry of a table; None if it has none, or where there is no list and `CALVE_TABLES` names none."""
    return read_table_list(is_needed=lambda name: name == table).get(table) if has_list() else None


def has_list() -> bool:
    """Return whether there is a list of tables, or `CALVE_TABLES` names one."""
    return bool(os.environ.get("CALVE_TABLES")) or tables_path().exists()


_FORM_FIELDS = ("source", "source_format", "bad_files", "invalid_partitions", "null_keys", "mode")
_CONTRACT_FIELDS = {"contract_columns": "columns", "contract_types": "types"}
_FIELDS = set(TableConfig.__dataclass_fields__) - {"table", "key_expressions"}


@dataclass(frozen=True)
class WrongEntry:
    """An invalid entry of the list.

    Attributes:
        error: The reason, with the file and the table.
        schedule: The entry's schedule; `@once` if that is invalid, too.
    """

    error: InvalidConfigurationError
    schedule: str | None


@dataclass(frozen=True)
class TableList:
    """The valid and invalid entries of the list.

    Attributes:
        configs: Table name → entry.
        wrong: Table name → invalid entry. An invalid table name is kept as written.
    """

    configs: Mapping[str, TableConfig]
    wrong: Mapping[str, WrongEntry]

    def get(self, table: str) -> TableConfig | None:
        """Return the entry of a table, None if it has none; other invalid entries do not matter.

        Raises:
            InvalidConfigurationError: The table's own entry is invalid.
        """
        if table in self.wrong:
            raise self.wrong[table].error
        return self.configs.get(table)


def read_table_list(path: Path | None = None, *, is_needed: Callable[[str], bool] | None = None) -> TableList:
    """Read the list. `${NAME}` in a source stands for an environment variable.

    Args:
        path: The list; by default that of the installation.
        is_needed: Returns for the name of a table whether its entry is read; by default all are.

    Raises:
        InvalidConfigurationError: The file is missing, not YAML, or not a mapping of tables.
    """
    path = path or tables_path()
    configs: dict[str, TableConfig] = {}
    wrong: dict[str, WrongEntry] = {}
    for written, read_entry in read_entries(path):
        name, place = _printable(written), f"{path}, table {written}"
        problems, entry = Problems(), None
        with problems:
            name = str(TableName.parse(written))
            if is_needed and not is_needed(name):
                continue
            if "." not in written:
                raise InvalidConfigurationError(f"the name has no database; write it as database.table: {name}")
        with problems:
            if name in configs or name in wrong:
                raise InvalidConfigurationError(f"the list has two entries of {name}; remove one")
        with problems:
            entry = read_entry()
            config = _table_config(place, name, entry)
        with problems:
            # Not for forms, which would show the worker's environment to their user.
            source = _require_path(place, _expand(place, _source(entry)))
        if problems.found:
            configs.pop(name, None)
            earlier = wrong[name].error.problems if name in wrong else ()
            wrong[name] = WrongEntry(_located(place, problems.found, earlier), _schedule_of_wrong(place, entry))
        else:
            configs[name] = replace(config, source=source)
    return TableList(configs, wrong)


def _schedule_of_wrong(place: str, entry: Any) -> str | None:
    try:
        return _schedule(place, entry)
    except (AttributeError, ValueError, CatalogError):
        return "@once"


def _source(entry: Any) -> str:
    return str(entry.get("source") or "") if isinstance(entry, dict) else ""


def _located(place: str, problems: Iterable[str], earlier: Iterable[str] = ()) -> InvalidConfigurationError:
    """Return an error with the place before each problem; `earlier` have theirs."""
    sentences = (_printable(f"{place}: {problem.removeprefix(f'{place}: ')}") for problem in problems)
    return InvalidConfigurationError(*dict.fromkeys((*earlier, *sentences)))


def _printable(text: str) -> str:
    """Return a string in which characters that databases cannot store are escaped."""
    return _UNPRINTABLE.sub(lambda match: repr(match.group())[1:-1], text)


def load_sources(path: Path | None = None) -> dict[str, TableConfig]:
    """Return the valid entries of the list that have a source.

    Raises:
        InvalidConfigurationError: As `read_table_list`.
    """
    return {name: config for name, config in read_table_list(path).configs.items() if config.source}


def rebalance_rules(table: str) -> RebalanceRules:
    """Return the rebalance rules of a table: those of its entry in the list, or the defaults.

    Raises:
        InvalidConfigurationError: As `read_table_list`, or the table's entry is invalid.
    """
    table = str(TableName.parse(table))
    listed = read_table_list(is_needed=lambda name: name == table).get(table)
    return RebalanceRules.from_config(listed.rebalance if listed is not None else {})


def _table_config(place: str, name: str, entry: Any) -> TableConfig:
    if not isinstance(entry, dict):
        raise InvalidConfigurationError(f"{place}: {entry!r} is not a mapping; give at least its source")
    problems = Problems()
    with problems:
        if unknown := sorted(map(str, set(entry) - _FIELDS)):
            known = ", ".join(sorted(_FIELDS))
            raise InvalidConfigurationError(f"unknown field {', '.join(unknown)}; the fields are {known}")
    with problems:
        if not entry.get("source") and not entry.get("rebalance") and entry.get("compaction") is None:
            raise InvalidConfigurationError("field source is missing; add the file, folder or glob of the raw files")
    fields = {field_name: value for field_name, value in entry.items() if field_name in _FIELDS}
    try:
        config = _read_fields(place, name, fields)
    except (CatalogError, ValueError, RecursionError):
        problems.found += _problems_of_fields(place, name, fields)
    with problems:
        _check_columns_without_header(place, fields)
    if problems.found:
        raise _located(place, problems.found)
    return config


def _check_columns_without_header(place: str, entry: Mapping[str, Any]) -> None:
    """Check the columns that the rules of a load name; they are known if CSV files have no header.

    Without `keys`, the table may have keys that are in the names of folders.

    Raises:
        InvalidConfigurationError: A rule names another one, or a field is invalid.
    """
    options = overridden(DEFAULT_OPTIONS, read_texts(place, entry, "source_options"))
    if entry.get("source_format", "csv") != "csv" or options["header"].lower() == "true":
        return
    keys, listed = read_keys(place, entry)[0], read_types(place, entry, "columns", check_column_type)
    if not keys or not listed:
        return
    columns = [*keys, *listed]
    merge = MergeRule.from_config(entry["merge"]) if entry.get("merge") else None
    rules = {"required": _names(place, entry, "required"), **({} if merge is None else merge.columns())}
    known = f"their columns are {', '.join(columns)}."
    problems = [
        f"{field_name} has {name}, which files without a header do not have; {did_you_mean(name, columns) or known} "
        "Correct it, or list the column in columns"
        for field_name, names in rules.items()
        for name in names
        if name not in columns
    ]
    if problems:
        raise InvalidConfigurationError(*problems)


def _problems_of_fields(place: str, name: str, fields: Mapping[str, Any]) -> list[str]:
    """Return all that is wrong with the fields of an entry.

    A field is wrong if it cannot be read with those fields that can be read alone: it may need some of them.
    """
    keys = fields.get("keys")
    # Other fields name the keys, whatever is wrong with their types.
    named = {"keys": dict.fromkeys(keys, "string")} if isinstance(keys, dict) else {}

    def problems_of(chosen: Iterable[str]) -> list[str]:
        problems = Problems()
        with problems:
            _read_fields(place, name, {**named, **{field_name: fields[field_name] for field_name in chosen}})
        return problems.found

    doubtful = [field_name for field_name in fields if problems_of([field_name])]
    sound = [field_name for field_name in fields if field_name not in doubtful]
    return [problem for field_name in doubtful for problem in problems_of([*sound, field_name])] or problems_of(fields)


def _read_fields(place: str, name: str, entry: Mapping[str, Any]) -> TableConfig:
    keys, key_expressions = read_keys(place, entry)
    quality = entry.get("quality") or {}
    check_quality(quality, keys, entry)
    rebalance = entry.get("rebalance") or {}
    if not isinstance(rebalance, dict):
        raise InvalidConfigurationError(
            f"{place}: rebalance is {rebalance!r}, expected a mapping such as {{apply: true}}"
        )
    RebalanceRules.from_config(rebalance)
    notify = entry.get("notify") or {}
    NotifyRules.from_config(notify)
    if (compaction := entry.get("compaction")) is not None:
        CompactionRules.from_config(compaction)
    defaults = {
        field_name: _one_of(place, entry, field_name, allowed)
        for field_name, allowed in (
            ("source_format", SOURCE_FORMATS),
            ("format", (*READABLE_FORMATS, ICEBERG)),
            ("bad_files", BAD_FILES),
            ("invalid_partitions", INVALID_PARTITIONS),
            ("null_keys", NULL_KEYS),
            ("mode", MODES),
        )
        if entry.get(field_name, "") != ""
    }
    if "source_options" in entry:
        defaults["source_options"] = _source_options(place, entry)
    return TableConfig(
        table=str(TableName.parse(name)),
        source=str(entry.get("source") or ""),
        keys=keys,
        key_expressions=key_expressions,
        columns=read_types(place, entry, "columns", check_column_type),
        required=_names(place, entry, "required"),
        contract=Contract.from_config(entry.get("contract")).as_json(),
        merge=_merge(entry),
        indexes=read_indexes(place, entry, keys),
        schedule=_schedule(place, entry),
        quality=quality,
        rebalance=rebalance,
        compaction=compaction,
        spark=table_spark_conf("spark", entry.get("spark")),
        connection=_connection(place, entry),
        notify=notify,
        **defaults,
    )


def _merge(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    merge = {} if (given := entry.get("merge")) is None else given
    if merge != {} or entry.get("mode") == LoadMode.MERGE:
        MergeRule.from_config(merge)
    return dict(merge)


def _names(place: str, entry: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = entry.get(name) or []
    if not isinstance(value, list | tuple):
        raise InvalidConfigurationError(
            f"{place}: {name} is {value!r}, expected a list of columns such as [id, amount]"
        )
    return tuple(normalise_identifier(str(column), "column") for column in value)


def _connection(place: str, entry: Mapping[str, Any]) -> str:
    connection = entry.get("connection") or ""
    if not isinstance(connection, str) or not _CONNECTION.fullmatch(connection):
        raise InvalidConfigurationError(
            f"{place}: connection is {connection!r}, expected the id of an Airflow connection such as spark_default"
        )
    return connection


def _source_options(place: str, entry: Mapping[str, Any]) -> dict[str, str]:
    options = read_texts(place, entry, "source_options")
    check_reader_options(place, options)
    spark = entry.get("spark")
    reads_all = isinstance(spark, Mapping) and "spark.sql.legacy.javaCharsets" in spark
    if entry.get("source_format", "csv") == "csv" and not reads_all:
        check_encoding(place, options)
    return overridden(DEFAULT_OPTIONS, options)


def _one_of(place: str, entry: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> Any:
    if entry[name] not in allowed:
        raise InvalidConfigurationError(f"{place}: {name} is {entry[name]!r}, expected one of {', '.join(allowed)}")
    return str(entry[name])


def _schedule(place: str, entry: Mapping[str, Any]) -> str | None:
    """Return the schedule, checked here because Airflow, which reads it later, would not name the invalid entry."""
    schedule = entry.get("schedule")
    if schedule is None or schedule in SCHEDULES or (isinstance(schedule, str) and _is_cron(schedule)):
        return schedule
    raise InvalidConfigurationError(
        f"{place}: schedule is {schedule!r}, expected a cron expression such as '0 6 * * *', one of "
        f"{', '.join(SCHEDULES)}, or null"
    )


def _is_cron(text: str) -> bool:
    # Airflow checks with the same library, and rejects the whole DAG file for one invalid expression.
    return _CRON.fullmatch(text) is not None and croniter.is_valid(text)


def _require_path(place: str, source: str) -> str:
    if "\0" in require_text(source, "source"):
        raise InvalidConfigurationError(f"{place}: source has the character '\\x00', which no path can have")
    return source


def _expand(place: str, text: str) -> str:
    known = {**os.environ, "CALVE_HOME": os.environ.get("CALVE_HOME") or str(state_folder())}

    def value(match: re.Match[str]) -> str:
        if match.group(1) not in known:
            raise InvalidConfigurationError(f"{place}: source {text} needs the environment variable {match.group(1)}")
        return known[match.group(1)]

    return _VARIABLE.sub(value, text)
