"""The commands of subscriptions; `projections.cli` imports them when they run."""
