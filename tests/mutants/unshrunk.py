"""A plugin of pytest for who asks only whether a test fails: no minutes for the smallest example of hypothesis."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile(
    "unshrunk", phases=[phase for phase in Phase if phase not in {Phase.shrink, Phase.explain}]
)
settings.load_profile("unshrunk")  # those of tests/conftest.py are made of it
