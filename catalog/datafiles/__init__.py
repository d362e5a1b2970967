"""The data files of tables with a partition scheme: listed, pruned, replaced."""
