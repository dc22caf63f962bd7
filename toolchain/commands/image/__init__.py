"""`tk image`: from a recipe's name to a running container.

One module for each subcommand, and `app.py` with the list of them. They import nothing heavy at the top (no
yaml, pydantic, jinja2, docker), as `tk --help` imports them.
"""
