"""The rendezvous that launched ranks meet, with answers for ranks that are absent."""
