"""Trigger forms, and tasks that act on their fields."""
