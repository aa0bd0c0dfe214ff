"""The simulation of a script while it runs: what its clocks, events and synchronisations are answered."""
