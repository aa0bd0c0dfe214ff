"""Explains what limits a job and which changes would help. Each change is simulated before it is reported."""
