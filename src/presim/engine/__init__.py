"""The discrete-event simulation of hosts, streams and collectives: priced traces in, timelines out."""
