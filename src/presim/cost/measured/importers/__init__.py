"""Readers of public tables of measurements: each takes a folder as its repository has it and yields rows.

A reader yields a `Measurement`, or in its place the reason why a row cannot be used; `Intake` counts those.
"""
