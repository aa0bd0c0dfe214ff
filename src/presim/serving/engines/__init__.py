"""Engines that serve requests in simulated time."""
