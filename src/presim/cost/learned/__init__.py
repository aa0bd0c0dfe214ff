"""Corrections of the analytic prices, learned from measurements and kept as data."""
