"""Choose which ranks run on this machine, and which captured rank represents each of the others.

`auto` chooses; `presim.capture.processes.wave` runs some of them together.
"""
