"""Confirm a search: capture the best composed plans on a real framework."""
