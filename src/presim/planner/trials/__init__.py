"""Trials: evaluated by worker processes and stored in studies."""
