"""Start, fork, watch and end the processes of ranks on this machine."""
