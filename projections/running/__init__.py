"""Running projections: workers, the ranges that they hold, and what is done with each batch."""
