"""What came out of a run: a plain dictionary first, then pictures and a page made from it alone."""
