"""Plans of frameworks that build on PyTorch's own parallelism, and of single models."""
