"""`tk tune`: the search for fast kernels, and the database of what it found.

One module for each subcommand or a few that belong together, and `app.py` with the list of them. They import
nothing heavy at the top, as `tk --help` imports them.
"""
