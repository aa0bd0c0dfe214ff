"""Capture: run an unmodified PyTorch program on the emulated device and record its work as traces.

`run` is the launcher's side and never imports torch; `runner` runs inside the script's own process. A capture passes
through the packages in this order:

* `setup` finds PyTorch and the emulated libraries.
* `launchers` parses the launch command.
* `ranks` and `processes` choose the ranks to run and start them.
* `script`, `distributed`, `device_values` and `adapters` observe the script from inside.
* `reading` turns their logs into traces.
"""
