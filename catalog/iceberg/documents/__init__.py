"""Metadata of Iceberg tables and views as JSON documents, to which the updates of Iceberg's REST protocol are applied.

A document keeps what this version of Calve does not know, so that nothing that an engine wrote is lost. Source: the
Iceberg table spec and view spec; `rest-catalog-open-api.yaml` of Iceberg 1.10.
"""
