"""Whole trainings: days, goodput, energy and money for a token budget, with failures, checkpoints and restarts."""
