"""Prices from formulas, calibrated against public measurements."""
