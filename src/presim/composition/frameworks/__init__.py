"""Training frameworks whose own code is captured for a plan, instead of composing a graph."""
