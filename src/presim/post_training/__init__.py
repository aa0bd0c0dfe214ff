"""Post-training by reinforcement learning: rollouts, training and transfers of weights in one simulation."""
