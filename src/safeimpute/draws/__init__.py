"""Proper draws of every missing value, and pooling."""
