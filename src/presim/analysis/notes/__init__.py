"""What a reader should know beside the figures: origins, limits, gaps."""
