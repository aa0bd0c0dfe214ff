"""What the verbs that predict do, from their options to all that reports are made of: one module a verb."""
