"""Predictions beside measured runs: a table of cases in, the same table with predictions out."""
