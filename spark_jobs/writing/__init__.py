"""Writing of tables' data files to staging folders."""
