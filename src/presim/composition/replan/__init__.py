"""A captured job under another plan, without a new capture."""
