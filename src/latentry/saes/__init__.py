"""Sparse autoencoders: reading one, training one, measuring one, and the gate before one is used."""
