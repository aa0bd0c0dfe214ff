"""What people and other programs read: one module a format, each from a result or an evaluation."""
