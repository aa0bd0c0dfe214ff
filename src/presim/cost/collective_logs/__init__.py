"""From measured collectives to a cluster's file: readers of logs and tables, and the fit."""
