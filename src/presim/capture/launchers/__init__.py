"""Parse launch commands: each launcher's options, and the variables that it would set for each rank.

One module per launcher; `read.read_command` chooses. The launchers need not be installed.
"""
