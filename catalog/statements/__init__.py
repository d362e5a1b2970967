"""The SQL front door: statements on databases, tables, partitions and rows.

`splitting` splits a script, `parser` parses one statement into a value of `model`, and a `session.Session` runs it.
Work that needs Spark goes to an `engine.Engine`, which starts with the first statement that needs it.
"""
