"""The options of Spark's readers that an entry of the list of tables may have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from catalog.errors import InvalidConfigurationError

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
_PLACES = ("path", "paths", "avroschemaurl", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter")
_LOSSES = ("mode", "ignorecorruptfiles", "ignoremissingfiles")
"""Options with which Spark would leave out rows in silence."""
_KNOWN = {option.lower(): option for option in READER_OPTIONS}


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
        similar = difflib.get_close_matches(name.lower(), _KNOWN, n=1)
        advice = f"did you mean {_KNOWN[similar[0]]}?" if similar else "docs/loading.md lists options of each format"
        raise InvalidConfigurationError(f"{wrong}, which is no option for source files; {advice}")
