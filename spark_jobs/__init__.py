"""The Spark jobs: each one a function of a SparkSession, and a script for spark-submit."""
