"""Types of columns and partition keys: their names, values and order-preserving encoding."""
