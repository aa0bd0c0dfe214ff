"""Results that verbs wrote, read back and shown: one registry for `presim report` and `presim view`."""
