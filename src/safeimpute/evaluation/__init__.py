"""Scoring methods on values that were known and hidden, always on the same splits."""
