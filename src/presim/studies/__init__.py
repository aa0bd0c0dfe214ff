"""Questions asked of saved jobs: what limits one, budgets, whole trainings, a correction by a run."""
