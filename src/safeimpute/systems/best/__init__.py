"""The default system: evidence, course, boosted trees, blend, learned risk."""
