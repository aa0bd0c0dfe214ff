"""The answer of a search: table, page, files, and the reasons."""
