"""Exports a model's training step from PyTorch: runs it once, forward and backward, on meta tensors.

Nothing is computed and no memory is allocated. A dispatch mode below autograd, as in PyTorch's own exporters, records
each operator that eager PyTorch would run, in order. Small integer tensors (positions, masks) are computed, because
models read them. Runs in a separate process: ``python -m presim.composition.graph.export REQUEST OUT``.
"""
