"""The second fidelity: the best composed plans, captured on the real framework."""
