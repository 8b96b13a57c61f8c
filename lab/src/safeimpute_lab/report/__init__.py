"""Benchmarks and reproductions as folders: tables, figures, JSON."""
