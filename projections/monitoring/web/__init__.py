"""The monitor: a web page of every slice's lag, live, and the few things that can be done about it."""
