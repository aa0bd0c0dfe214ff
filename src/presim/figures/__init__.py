"""The parts of a result: figures with the descriptions from which schema and documentation are made."""
