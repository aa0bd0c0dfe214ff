"""Measure operators on a machine with a GPU: plain PyTorch, nothing else."""
