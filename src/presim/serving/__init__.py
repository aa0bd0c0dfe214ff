"""Performance of language-model deployments: workloads, engine steps, the scheduler, fleets, and SLOs."""
