"""Imports the families, whose rules fill the table."""
