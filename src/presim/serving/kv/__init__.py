"""Memory for keys, values and states as an engine lays it out: layers, groups, pages, and what does not fit."""
