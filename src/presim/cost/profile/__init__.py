"""Measure operators on a machine with a GPU, using plain PyTorch."""

NO_GPU, CARD_LOST = 3, 4  # exit codes of the measuring process: PyTorch finds no GPU; the GPU is in an error state
