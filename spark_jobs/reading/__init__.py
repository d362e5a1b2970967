"""DataFrames over sources and over tables of the catalog."""
