"""Deployments: simulated, searched, and started."""
