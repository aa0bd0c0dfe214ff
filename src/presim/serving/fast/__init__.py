"""A compiled simulator of vLLM's scheduler: it decides as vLLM's own does, step by step, for one engine or a fleet."""
