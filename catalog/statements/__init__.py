"""The SQL front door: statements on databases, tables, partitions and rows, read here and run on the catalog.

`splitting` cuts a script, `parser` reads one statement into a value of `model`, and a `session.Session` runs it. What
needs Spark goes to an `engine.Engine`, which is started by the first statement that needs it.
"""
