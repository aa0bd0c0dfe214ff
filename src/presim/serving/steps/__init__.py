"""What one step of an engine takes, and what memory it needs."""
