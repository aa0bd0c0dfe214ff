"""Measured durations: rows, the checks that they pass, tables of them, and readers of other people's formats."""
