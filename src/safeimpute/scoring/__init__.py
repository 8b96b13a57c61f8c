"""A frozen model, its folder, and scoring of visits that came in since."""
