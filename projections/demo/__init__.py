"""
The demo: real flights through a journal into read models, and proof that each event counted exactly once.

One process appends and others read, so killing any at any time must change nothing in the end.
"""
