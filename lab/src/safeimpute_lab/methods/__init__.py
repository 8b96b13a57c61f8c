"""The other imputation methods, one file each."""
