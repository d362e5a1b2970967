"""The front door for clients of AWS Glue's Data Catalog: HTTP with JSON 1.1."""
