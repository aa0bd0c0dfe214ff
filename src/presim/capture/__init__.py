"""Capture: run a real PyTorch program on the emulated device and keep what it asked for.

`run` is the launching side and never imports torch; `runner` is its other end, inside the script's own process. A run
goes through the packages in this order: `setup` finds PyTorch and the emulated libraries, `launchers` reads the launch
command, `ranks` starts processes, `script`, `distributed`, `device_values` and `adapters` observe the script from
inside, and `reading` makes a trace of what they logged.
"""
