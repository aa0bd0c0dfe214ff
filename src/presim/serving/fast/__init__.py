"""A compiled simulator of vLLM's scheduler: it makes the same decisions step by step, for one engine or a fleet."""
