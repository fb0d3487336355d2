"""
The demo: real flights through a journal into read models, and proof that each event counted exactly once.

One process appends and others read, so killing any at any time must change nothing in the end.
"""

from projections.demo.checking import ReadModel as ReadModel
from projections.demo.rebuilding import Built as Built
from projections.demo.rebuilding import Rebuilder as Rebuilder
