"""Folds by patient, roles, what is hidden from whom, and the named random streams."""
