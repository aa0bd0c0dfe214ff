"""Ready files: what starts a plan on a real framework, each of which `presim run` takes as it is."""
