"""Imputers: from a task (visits with hidden targets) to a value for every visit."""
