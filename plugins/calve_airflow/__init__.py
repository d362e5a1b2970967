"""What Airflow users see of Calve: operators, sensors, triggers and assets."""
