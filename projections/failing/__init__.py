"""What becomes of what fails: when it is tried again, and what is done when no attempt is left."""
