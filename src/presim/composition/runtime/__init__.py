"""Runtime of training frameworks around the model's blocks: gathers, reductions, messages, updates."""
