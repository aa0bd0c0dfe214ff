"""Models as operator graphs: exported from PyTorch once, changed by passes, composed into traces without running."""
