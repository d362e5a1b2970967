"""The data files of tables with a partition scheme: file rows, footers, pruning and commits."""
