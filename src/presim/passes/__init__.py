"""Passes: pure functions from a graph to a graph, one concept a file."""
