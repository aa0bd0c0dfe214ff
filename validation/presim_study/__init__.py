"""Published runs: how tables of measured step times become runs of presim's recipes.

The package registers itself in the entry-point group ``presim.cases``, so that ``presim validate`` can predict the
rows of published tables. `planners` chooses the recipe of a row, `runs` captures and simulates it.
"""
