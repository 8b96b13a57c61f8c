"""The same scoring and the same sums on a cluster."""
