"""The network between GPUs, link by link: topologies, routes, and flows that share bandwidth."""
