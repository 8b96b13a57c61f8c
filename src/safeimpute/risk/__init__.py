"""Risk scores: how likely an imputation is to miss by more than the tolerance, judged without its target."""
