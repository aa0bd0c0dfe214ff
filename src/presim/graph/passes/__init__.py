"""Passes: pure functions from a graph to a graph, or from a schedule to a schedule, one concept a file."""
