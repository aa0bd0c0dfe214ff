"""Values on the emulated device: who answers where nothing was computed, and which of them the script reads.

The computing itself is C++ (shim/hook/values); what Triton kernels do to values is said here, by name.
"""
