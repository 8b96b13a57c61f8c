"""Studies of what is promised and of what it costs; each is run by `python -m safeimpute_lab NAME`."""
