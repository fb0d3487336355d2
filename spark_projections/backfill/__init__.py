"""History from files into the journal."""
