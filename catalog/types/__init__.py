"""Types of columns and partition keys: names, values, and the bytes that sort as the values do."""
