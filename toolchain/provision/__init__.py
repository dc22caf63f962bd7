"""Images on an engine: locked, pulled, built, read back, published; and bundles for those without network."""
