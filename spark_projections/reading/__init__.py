"""The journal as Arrow batches: what is settled, how slices are split, events as handlers get them."""
