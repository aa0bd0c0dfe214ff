"""Compose traces of training jobs from a model graph and a plan, without running the job."""
