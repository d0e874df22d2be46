"""Programs for weights that others have trained: `sexpgpu import`."""
