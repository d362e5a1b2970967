"""Access to files and folders on all file systems, and comparison of locations."""
