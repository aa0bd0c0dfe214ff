"""Reliability: files as they are broken in practice, and what each verb makes of them."""
