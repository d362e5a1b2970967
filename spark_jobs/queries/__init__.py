"""SQL over tables of the catalog."""
