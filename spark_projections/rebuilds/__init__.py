"""Read models built again alongside those that serve, verified, and swapped in."""
