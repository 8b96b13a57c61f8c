"""The default system: evidence, courses, boosted trees, blend, learned risk."""
