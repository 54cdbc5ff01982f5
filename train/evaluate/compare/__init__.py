"""Two evaluated models side by side (`compare`), also by metrics of a whole list (`lists`)."""
