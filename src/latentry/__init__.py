"""latentry: a declarative experiment tracker for the interpretation of SAE latents."""
