"""Exact answers, to judge searches by: over small spaces, and over grids where costs add up."""
