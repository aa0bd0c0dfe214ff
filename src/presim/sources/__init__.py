"""Trace sources: whatever delivers a job, each behind one interface (`presim.sources.source`)."""
