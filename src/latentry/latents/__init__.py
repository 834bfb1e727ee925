"""Every activation of every latent: encoded once, kept latent after latent, with a row of statistics each."""
