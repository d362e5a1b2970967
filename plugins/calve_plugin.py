"""Calve's plugin, for an Airflow that reads it from this folder; that of an installed package has an entry point."""

from importlib.metadata import entry_points

from calve_airflow.plugin import CalvePlugin as Plugin

if "calve" not in entry_points(group="airflow.plugins").names:
    # Airflow takes the classes that it finds in this module.
    CalvePlugin = Plugin
del Plugin
