"""From the capture log to a Trace: what was launched, by which operator, with which bytes, in which group."""
