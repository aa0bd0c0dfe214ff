"""Results of a serving simulation: metrics, terminal report, page, timeline."""
