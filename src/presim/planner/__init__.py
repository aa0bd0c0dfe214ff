"""Search over training plans or over the arguments of a command."""
