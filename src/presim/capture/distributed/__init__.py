"""Adapt torch.distributed, in the script's process, to a world in which only some ranks run."""
