"""Profiles of PyTorch's profiler (Kineto's Chrome traces) as jobs: read, find the step, rebuild what was asked."""
