"""Launch commands as people have them: what each launcher's options say, and what it would set for each rank.

One module per launcher, and `read.read_command` chooses. None of the launchers has to be installed.
"""
