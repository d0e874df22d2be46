"""What is run inside the runtimes' environments, and what is known of each: `<name>.toml`."""
