"""Which ranks run, as processes on this machine, and who answers for those that do not.

`auto` chooses, `wave` runs some of them together: processes, their variables, the store where they meet.
"""
