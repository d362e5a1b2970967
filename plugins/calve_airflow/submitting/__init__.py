"""Submission of Spark jobs as processes, and their monitoring."""
