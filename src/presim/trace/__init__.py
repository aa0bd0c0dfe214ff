"""What one rank asked of its device: signatures, entries, and the files that hold them."""
