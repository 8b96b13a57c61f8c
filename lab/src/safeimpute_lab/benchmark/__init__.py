"""The other methods and how all are compared."""
