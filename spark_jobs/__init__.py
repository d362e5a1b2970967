"""Spark jobs: each is a function of a SparkSession and a script for spark-submit."""
