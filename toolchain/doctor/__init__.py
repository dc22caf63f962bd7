"""What of a machine fits tk, and what does not: rows with cause and fix. Looks only, changes nothing."""
