"""What has to be on this machine before anything can be captured: found, checked, and built where it can be."""
