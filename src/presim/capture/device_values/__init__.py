"""Values on the emulated device: policies for values that are not computed, and which values the script reads.

Values are computed in C++ (shim/hook/values); `triton` emulates kernels by name.
"""
