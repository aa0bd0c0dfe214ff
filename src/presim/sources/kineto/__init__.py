"""Traces of PyTorch's profiler (Kineto's Chrome traces) as jobs: read them, select steps, rebuild the device work."""
