"""What a person sees of a search: a live table, its summary, and a page."""
