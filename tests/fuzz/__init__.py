"""`make fuzz`: hours of broken and of valid requests on the front doors, and what they leave behind."""
