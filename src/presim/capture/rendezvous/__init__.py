"""The rendezvous store of launched ranks, which answers for absent ranks."""
