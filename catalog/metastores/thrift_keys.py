"""Lists as keys of maps in the protocol of the Hive Metastore."""

from __future__ import annotations

from hive_metastore import ttypes

_LOCATIONS = 3
"""The field of `SkewedInfo` with the folders of skewed values, the only such map."""


def read_list_keys() -> None:
    """Have Thrift read the lists that are keys of a map as tuples; as lists, which have no hash, it cannot read them.

    Thrift's compiler leaves out the mark by which its decoder makes tuples.
    """
    fields = ttypes.SkewedInfo.thrift_spec
    number, kind, name, (key, (item, encoding, _), *value), default = fields[_LOCATIONS]
    locations = (number, kind, name, (key, (item, encoding, True), *value), default)
    ttypes.SkewedInfo.thrift_spec = (*fields[:_LOCATIONS], locations)
    for field in ttypes.StorageDescriptor.thrift_spec:
        if field is not None and field[2] == "skewedInfo":
            # A structure keeps the fields of those that are in it.
            field[3][1] = ttypes.SkewedInfo.thrift_spec
