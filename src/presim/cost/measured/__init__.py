"""Measured durations: rows and their checks, tables, and importers of public formats."""
