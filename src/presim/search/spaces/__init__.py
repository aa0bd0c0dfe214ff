"""Space files: knobs of a framework's command with their values and constraints, as data."""
