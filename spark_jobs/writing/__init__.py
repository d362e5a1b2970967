"""Data files of tables, written where no reader looks."""
