"""Building blocks of Iceberg's table format: schemas, file statistics, manifests, metadata.

Independent of Calve's operations. PyIceberg is imported only inside this package, and importing it is slow: import
these modules where they are needed, not at the top of modules that every command imports.
"""
