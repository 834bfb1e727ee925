"""Pages to read: the report, made of the comparison and of examples, without a network."""
