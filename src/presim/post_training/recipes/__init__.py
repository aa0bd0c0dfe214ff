"""Recipes of post-training frameworks, read as they are given: their keys and what each means to presim."""
