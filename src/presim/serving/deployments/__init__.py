"""Deployments: simulation, search, and launch files."""
