"""Trigger forms, and checks of their fields and of template markup in task arguments."""
