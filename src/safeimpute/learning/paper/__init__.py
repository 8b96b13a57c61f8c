"""The paper's system: event graph, two-relation network, proxy risk."""
