"""What touches the machine: files, memory, threads, progress."""
