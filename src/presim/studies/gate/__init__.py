"""Memory and step-time budgets for a repository's CI: jobs and limits in a TOML file, held against predictions."""
