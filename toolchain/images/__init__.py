"""Images: from a resolved recipe to a plan, and from the plan to the text that builds it."""
