"""The stage of a migration: folders listed, footers read, manifests written."""
