"""Fit learned prices to measurements."""
