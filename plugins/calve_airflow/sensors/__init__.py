"""Sensors that wait for the state of partition indexes."""
