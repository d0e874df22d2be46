"""Measurements: what takes how much time and memory; each is a program of its own."""
