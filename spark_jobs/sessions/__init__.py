"""Spark sessions, and what runs in executors."""
