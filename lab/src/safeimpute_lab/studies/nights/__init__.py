"""Nights of scoring in simulated hospitals and on real data."""
