"""Files that start a deployment: engines, router, benchmark, and a check of the SLO."""
