"""``python -m presim``."""

from presim.cli.main import main

main()
