"""Windows, deciles, splits and contrasts: what the explainers and the scorers see of a latent."""
