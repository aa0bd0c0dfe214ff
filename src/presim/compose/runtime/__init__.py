"""What a training framework does around the model's blocks: gathers, reductions, messages, updates."""
