"""A local web application: ask, watch, change and compare predictions, by the command line's own verbs and files."""
