"""What observes a script from inside its own process: operators, modules, optimizer steps, memory, its clock.

Started by `presim.capture.runner`. The launching side uses only what imports no torch: `control`, `current_line`.
"""
