"""Reads a model's layers from its own code: transformers' class, instantiated on tensors without memory.

In a separate process: ``python -m presim.composition.models.export CONFIGS OUT``. Code of a checkpoint is never run.
"""
