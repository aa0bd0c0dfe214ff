"""Time of a step: where it goes, by phase, module, operator and instant."""
