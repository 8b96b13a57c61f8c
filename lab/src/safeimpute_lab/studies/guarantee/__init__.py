"""The guarantee, studied: rules alone, whole cohorts, bounds and groups, and the page of it."""
