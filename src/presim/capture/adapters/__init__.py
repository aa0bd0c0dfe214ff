"""What a framework needs beyond environment variables: one small module each, with the reason.

Also which versions were tried (`versions`), and extensions that presim cannot stand below (`extensions`).
"""
