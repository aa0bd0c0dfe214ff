"""Whole training runs: days, goodput, energy and cost for a token budget, with failures, checkpoints and restarts."""
