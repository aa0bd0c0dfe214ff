"""Prices of collectives on a cluster."""
