"""Two systems behind one protocol: each turns visits into a value and a risk for every visit."""
