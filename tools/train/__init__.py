"""Training: a program's run carried out with JAX, and its evaluation."""
