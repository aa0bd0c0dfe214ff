"""Time and memory of one engine step."""
