"""Spark sessions, results and errors, and Python tasks in executors."""
