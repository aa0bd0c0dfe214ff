"""Plans which ranks compute which parts of a batch of prompts: sequence parallelism, chosen for each prompt."""
