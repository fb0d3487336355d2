"""
The demo: real flights through a journal into read models, and proof that each event counted exactly once.

A process of its own appends while this one reads, so killing either at any time must change nothing in the end.
"""
