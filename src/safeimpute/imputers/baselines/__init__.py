"""Methods to compare with, one file each or one file per simple family."""
