"""Executes operator graphs on CPU tensors, so that passes can be held against eager PyTorch."""
