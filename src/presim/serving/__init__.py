"""What a deployment of a language model delivers: requests, one engine's steps and scheduler, fleets, and SLOs."""
