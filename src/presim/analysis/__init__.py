"""From a priced trace and its timeline to the figures of a result: pure functions over numpy columns."""
