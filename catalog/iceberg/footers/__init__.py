"""Facts of data files from their own footers and headers: Parquet, ORC, Avro."""
