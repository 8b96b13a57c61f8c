"""Two systems behind one protocol: each turns visits into a value and a risk for every visit."""

SYSTEMS = {
    "best": "course and boosted trees over one table of evidence, cross-fitted and blended (the default)",
    "paper": "two-relation graph network of the paper",
}
