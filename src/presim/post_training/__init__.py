"""Post-training by reinforcement learning: rollouts and training steps in one simulation (`presim rl`)."""
