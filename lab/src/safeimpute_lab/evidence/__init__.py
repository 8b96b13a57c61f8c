"""The evidence on data sets: accuracy and release of every method, and its pages."""
