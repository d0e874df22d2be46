"""The typed tensor graph: its types, its nodes, how it is built, and what it means in NumPy."""
