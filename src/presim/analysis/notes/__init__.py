"""Notes beside the figures of a result: origins of prices, limits of the step, effects that are not modelled."""
