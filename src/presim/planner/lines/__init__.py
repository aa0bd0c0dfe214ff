"""Answer for points of a command that differ in one number from two captured ones."""
