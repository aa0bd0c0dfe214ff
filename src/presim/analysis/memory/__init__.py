"""Device memory: what holds it, and whether a job fits."""
