"""Correct a cluster's description by a run on it: a step time, a log, or a profile (`presim calibrate job`)."""
