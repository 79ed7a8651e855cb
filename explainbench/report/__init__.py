"""Reports drawn from results."""
