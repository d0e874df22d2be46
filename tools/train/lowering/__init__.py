"""A graph in JAX: each operation's meaning again, so that it can be compiled and differentiated."""
