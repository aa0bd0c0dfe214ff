"""Figures of a run, and their forms: record, page, timeline."""
