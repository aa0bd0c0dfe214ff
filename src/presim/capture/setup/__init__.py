"""Find, check and build what captures need on this machine."""
