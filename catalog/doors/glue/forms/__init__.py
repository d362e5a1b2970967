"""Conversion between the JSON of Glue and the common form of metastores' entries."""
