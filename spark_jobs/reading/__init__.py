"""Reading of sources and of catalog tables as DataFrames."""
