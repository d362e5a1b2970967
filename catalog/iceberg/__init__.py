"""What Iceberg's table format is made of: schemas, file statistics, manifests, metadata.

Nothing here knows an operation of Calve. PyIceberg is imported only inside this package, and takes a while: import the
modules of this package where they are needed, not at the top of what every command imports.
"""
