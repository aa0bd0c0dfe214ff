"""What limits a job, and what would help: each candidate is simulated before it is named."""
