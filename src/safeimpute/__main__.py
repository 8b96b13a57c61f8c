"""`python -m safeimpute`."""

from safeimpute.cli import main

main()
