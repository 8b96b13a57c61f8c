"""Who gets measured: the model, its weights, its scope and its diagnosis."""
