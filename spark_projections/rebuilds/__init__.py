"""Read models built anew beside those that serve, verified, and swapped in."""
