"""Graph passes: pure functions from an operator graph to an operator graph, one concept per file."""
