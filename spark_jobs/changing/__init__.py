"""Changes of rows: they read what a condition selects, and write what takes its place."""
