"""What serving.py measures: kernels of inference engines and whole steps."""
