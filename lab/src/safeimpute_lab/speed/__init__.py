"""How fast and how large: seconds and memory of single parts, and of tables by the million."""
