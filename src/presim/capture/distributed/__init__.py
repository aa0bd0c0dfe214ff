"""torch.distributed in the script's process: to be one rank of a world of which only some ranks run."""
