"""Write launch files that start a plan on a real framework; `presim run` accepts each of them unchanged."""
