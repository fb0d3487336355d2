"""Who wants an event: one grammar of topics, and one meaning of filters, for subscriptions and webhooks alike."""
