"""Many networks on many targets: a plan, its trials, each made apart from the others, and their records."""
