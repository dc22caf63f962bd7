"""What was tried of which network on which target: records, and where they are kept."""
