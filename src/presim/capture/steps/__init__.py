"""Find what a script repeats: its loops, the marks that it leaves in them, and the loop whose iteration is a step."""
