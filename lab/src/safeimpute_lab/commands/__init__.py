"""The laboratory's commands of `safeimpute`, found by entry point."""
