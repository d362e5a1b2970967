"""Facts of data files from their footers and headers: Parquet, ORC, Avro."""
