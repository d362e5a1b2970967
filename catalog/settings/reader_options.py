"""The options of Spark's readers that an entry of the list of tables may have."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from typing import Any

from catalog.errors import InvalidConfigurationError
from catalog.errors.base import did_you_mean

READER_OPTIONS = (
    # Text. Source: CSVOptions and JSONOptions of Spark 4.1.
    *("charset", "charToEscapeQuoteEscaping", "columnPruning", "comment", "dateFormat", "delimiter", "emptyValue"),
    *("enableDateTimeParsingFallback", "encoding", "escape", "header", "ignoreLeadingWhiteSpace"),
    *("ignoreTrailingWhiteSpace", "inferSchema", "inputBufferSize", "lineSep", "locale", "maxCharsPerColumn"),
    *("maxColumns", "multiLine", "nanValue", "negativeInf", "nullValue", "positiveInf", "preferDate", "quote"),
    *("samplingRatio", "sep", "timeZone", "timestampFormat", "timestampNTZFormat", "unescapedQuoteHandling"),
    *("allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers", "allowNumericLeadingZeros"),
    *("allowSingleQuotes", "allowUnquotedControlChars", "allowUnquotedFieldNames", "dropFieldIfAllNull"),
    *("inferTimestamp", "prefersDecimal", "primitivesAsString"),
    # Others. Source: ParquetOptions, OrcOptions and AvroOptions.
    *("datetimeRebaseMode", "enableStableIdentifiersForUnionType", "int96RebaseMode", "mergeSchema"),
    *("positionalFieldMatching", "recursiveFieldMaxDepth", "stableIdentifierPrefixForUnionType"),
)
ENCODINGS = ("US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32")
"""The encodings of CSV files. Source: CharsetProvider of Spark 4.1."""

DEFAULT_OPTIONS = {"header": "true"}
"""The options of entries that do not give them. Readers of other formats than CSV ignore them."""

_PLACES = ("path", "paths", "avroschemaurl", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter")
_LOSSES = ("mode", "ignorecorruptfiles", "ignoremissingfiles")
"""Options with which Spark would leave out rows in silence."""
_KNOWN = {option.lower(): option for option in READER_OPTIONS}


def overridden(options: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the values and additions of others, whose names may be in another case; order is kept."""
    spelled = {name.lower(): name for name in options}
    return {**options, **{spelled.get(name.lower(), name): value for name, value in others.items()}}


def check_reader_options(place: str, names: Iterable[str]) -> None:
    """Check the names of options, whose case does not matter to Spark.

    An option of another format is allowed, because a single run may read another one; Spark ignores the option.

    Raises:
        InvalidConfigurationError: An option is unknown, says where files are, or is decided by Calve.
    """
    unknown = [name for name in names if name.lower() not in _KNOWN]
    # Spark treats an option with a dot as a setting of the file system, such as its endpoint.
    if of_places := [name for name in unknown if "." in name or name.lower() in _PLACES]:
        raise InvalidConfigurationError(
            f"{place}: source_options has {', '.join(of_places)}, which say where files are, not how to read them; "
            "set the path as source, and file system settings in Spark's configuration"
        )
    for name in unknown:
        wrong = f"{place}: source_options has {name}"
        if name.lower() in _LOSSES:
            raise InvalidConfigurationError(f"{wrong}, but no load leaves out rows in silence; see bad_files: skip")
        advice = did_you_mean(name, READER_OPTIONS) or "docs/loading.md lists options of each format"
        raise InvalidConfigurationError(f"{wrong}, which is no option for source files; {advice}")


def check_encoding(place: str, options: Mapping[str, str]) -> None:
    """Check that Spark reads CSV files in the encoding that options name.

    Raises:
        InvalidConfigurationError: It does not, at least without `spark.sql.legacy.javaCharsets`.
    """
    for option, name in options.items():
        if option.lower() in ("encoding", "charset") and name.upper() not in ENCODINGS:
            similar = _similar_encoding(name)
            raise InvalidConfigurationError(
                f"{place}: source_options has {option} {name}, which is no encoding of CSV files; "
                f"{f'{similar} The' if similar else 'the'} encodings are {', '.join(ENCODINGS)}"
            )


def _similar_encoding(name: str) -> str:
    try:
        same = [one for one in ENCODINGS if codecs.lookup(one) == codecs.lookup(name)]
    except LookupError:
        same = []
    return f"did you mean {same[0]}?" if same else did_you_mean(name, ENCODINGS)
