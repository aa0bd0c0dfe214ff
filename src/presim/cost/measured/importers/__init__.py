"""Importers of public measurement tables: each takes a folder laid out like its repository and yields rows.

An importer yields a `Measurement`, or the reason why a row cannot be used; `Intake` counts the reasons.
"""
