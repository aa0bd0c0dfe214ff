"""Corrections of analytic prices, learned from measurements and stored as data."""
