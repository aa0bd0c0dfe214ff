"""Workloads: generated from a seed, or read from public traces."""
