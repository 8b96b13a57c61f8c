"""The review page: a local server over one run's folder, a log of decisions, and static files without a build step."""
