"""What presim asks of the machine that it runs on, and knows nothing of jobs.

Files, signals, ports, limits of time and memory, compiled loops, and the plug-ins that are installed.
"""
