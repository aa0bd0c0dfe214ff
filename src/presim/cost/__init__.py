"""Estimators and collective models: how long each signature of a trace takes."""
