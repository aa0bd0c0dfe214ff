"""Reads a model's layers from its own code: transformers' class, instantiated on tensors without memory.

Runs in a separate process: ``python -m presim.models.export CONFIGS OUT``. Code of a checkpoint is never run.
"""
