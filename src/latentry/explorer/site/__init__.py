"""The explorer: a static site of all latents that opens from disk, with its data in chunks that a page loads as it needs them."""
