"""What the tests start: the service, a network that fails, and shops."""
