"""`python -m sexpgpu.tools.cli`: the command without its script."""

from sexpgpu.tools.cli import main

main()
