"""What several tests share: synthetic workloads, fixed prices, and the simplest simulator."""
