"""What the latents of an MLP's input do to those of its output: edges between two SAEs, how sparse they are, and what they explain.

The Jacobian itself is `mlp_jacobian.py`'s; here it is summed over tokens, described, and read with the explanations of the latents.
"""
