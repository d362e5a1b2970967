"""Rules for rows and columns that all jobs share."""
