"""Models as graphs of operators: taken from PyTorch once, changed by passes, composed into traces without running."""
