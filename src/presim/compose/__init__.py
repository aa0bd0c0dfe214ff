"""From a graph and a plan to the trace that a capture would give."""
