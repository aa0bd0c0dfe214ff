"""Changes of a graph that are no parallelism: fusion, quantisation, and passes of the user's own."""
