"""Turn a capture log into a trace: the launches, their operators, bytes and process groups."""
