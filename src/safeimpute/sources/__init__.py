"""Clinical sources in and out: readers, cohorts, writers."""
