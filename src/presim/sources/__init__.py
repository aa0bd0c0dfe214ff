"""Trace sources: every way to obtain a job, behind one interface (`presim.sources.source`)."""
