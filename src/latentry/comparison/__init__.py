"""SAEs beside each other: what each cell scored, how far any two are apart, and the few numbers that stand in git."""
