"""The laboratory of safeimpute: other methods, the benchmark, the paper reproduced, studies and their runners."""
