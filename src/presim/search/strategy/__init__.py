"""Which points are tried, and which are proven not to be the best."""
