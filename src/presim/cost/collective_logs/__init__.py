"""Fit a cluster file to measured collectives: readers of logs and tables, and the fit."""
