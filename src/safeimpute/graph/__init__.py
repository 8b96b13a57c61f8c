"""Visits become a graph: features, trends, edges in time and edges between patients who look alike."""
