"""Strategies: which points are tried, and which are ruled out without an evaluation."""
