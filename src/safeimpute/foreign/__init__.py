"""Selection for anybody's imputer: values are hidden, another tool fills in, what can be promised is released."""
