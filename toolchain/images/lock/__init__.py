"""The lock: `tk.lock` as data and text, what of it counts for a plan, and what it says to apt."""
