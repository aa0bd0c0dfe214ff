"""Published runs beside predictions: a table of cases in, the same table with what presim says out."""
