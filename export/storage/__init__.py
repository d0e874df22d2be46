"""Where weights and checkpoints live: locations, checkpoints, their cache, and `:load` files."""
