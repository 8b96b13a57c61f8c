"""Exact search for analogous visits, used by both systems."""
