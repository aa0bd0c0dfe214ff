"""Find what a script repeats: the loops that its code is in, the marks that it leaves, and the loop whose iteration is
a step.
"""
