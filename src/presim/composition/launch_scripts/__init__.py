"""Read launch scripts of Megatron-LM as a model with a plan; no script is run."""
