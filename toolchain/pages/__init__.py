"""Self-contained HTML pages: one file that loads nothing, for what is shown in a browser."""
