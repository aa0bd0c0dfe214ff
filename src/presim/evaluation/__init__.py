"""Evaluates a job on a cluster: price, simulate, analyse; and what would change with other hardware."""
