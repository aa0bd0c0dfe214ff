"""Space files: knobs of a framework's command with values and constraints, as data."""
