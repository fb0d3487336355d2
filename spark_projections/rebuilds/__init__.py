"""Read models built again beside those that serve, verified, and swapped in."""
