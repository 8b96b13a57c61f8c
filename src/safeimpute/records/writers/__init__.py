"""Formats safeimpute writes."""
