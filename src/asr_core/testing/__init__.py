"""What plugin authors test with; installed with the core so that a plugin needs no second package."""
