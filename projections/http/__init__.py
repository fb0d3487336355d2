"""What everything that is served over HTTP shares: addresses, tokens, checks, limits, and streams of events."""
