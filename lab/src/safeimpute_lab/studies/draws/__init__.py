"""Draws: whether pooled estimates cover, on simulated and on real tables."""
