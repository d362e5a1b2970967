"""Tasks of a migration's stage: list folders, read footers, write manifests."""
