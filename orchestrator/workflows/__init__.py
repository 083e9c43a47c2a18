"""One verb, one recipe: the rooms below wired together. They report through events and never print."""
