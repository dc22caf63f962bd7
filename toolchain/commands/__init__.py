"""One module per subcommand; each imports what it needs when it runs, so that `tk --help` stays quick."""
