"""Exchange with others: results written in their formats, theirs read into ours, and a folder of results checked."""
