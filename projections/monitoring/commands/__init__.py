"""The commands that show how far projections are behind."""
