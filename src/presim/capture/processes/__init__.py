"""Processes of ranks on this machine: started, forked, watched, and seen through to their end."""
