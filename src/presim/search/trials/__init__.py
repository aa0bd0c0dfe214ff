"""Trials: evaluated in worker processes, and stored."""
