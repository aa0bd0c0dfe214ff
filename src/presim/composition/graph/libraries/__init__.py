"""Functions of libraries that launch kernels past PyTorch's operators, for the process that takes a model's graph."""
