"""Which partition scheme a table should have: measured by an engine, decided here."""
