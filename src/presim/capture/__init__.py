"""Capture: run a real PyTorch program on the emulated device and keep what it asked for.

The launching side (`capture`) never imports torch; `runner` runs inside the script's own process and does.
"""
