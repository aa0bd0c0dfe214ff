"""Drawings of self-contained pages: SVG and CSS without scripts, in the colours of `presim.report.palette`."""
