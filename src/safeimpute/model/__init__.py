"""A fit, and what follows from it: the estimator, its saved form, the scoring of new visits."""
