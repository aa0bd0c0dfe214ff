"""What concerns the process itself: signals, limits of time and memory, local servers, compiled loops."""
