"""`tk`, the command line around the compiler; it uses the compiler's front door and nothing behind it."""
