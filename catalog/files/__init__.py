"""Files and folders on every file system, and locations compared in one spelling."""
