"""Observe a script from inside its process: operators, modules, optimizer steps, memory, its clock.

Installed by `presim.capture.runner`. The launcher uses only modules that do not import torch: `control`,
`current_line`.
"""
