"""Formats and errors: what every other part of sexpgpu may depend on, and which depends on none."""
