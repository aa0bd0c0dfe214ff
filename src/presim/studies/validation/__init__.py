"""Compares predictions with measured runs: reads a table of cases and writes it with predictions."""
