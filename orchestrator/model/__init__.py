"""Plain data that the rooms hand to each other: frozen, typed, without I/O."""
