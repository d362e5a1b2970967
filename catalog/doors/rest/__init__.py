"""Iceberg's REST catalog protocol over `Catalog`.

Source: `rest-catalog-open-api.yaml` of Iceberg 1.10, and the idempotency keys of later versions.
"""
