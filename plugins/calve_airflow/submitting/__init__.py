"""Spark jobs as processes: submitted, found again, watched."""
