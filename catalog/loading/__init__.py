"""Addition of rows: loads, appends, their publication, and the repair of partitions from folders."""
