"""Known errors, found in any text: pure matching; what is known stands in `recipes/issues/`."""
