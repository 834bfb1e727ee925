"""Texts and their tokens; one file per kind of corpus."""
