"""The simulation of a script while it runs: answers to its queries of clocks, events and synchronisations."""
