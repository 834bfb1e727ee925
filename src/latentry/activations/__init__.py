"""The subject run once over the tokens, and its activations kept."""
