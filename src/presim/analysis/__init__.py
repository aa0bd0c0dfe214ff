"""Computes the figures of a result from a priced trace and its timeline: pure functions over numpy columns."""
