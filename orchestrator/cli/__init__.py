"""What the user types and sees. click and rich are imported in this room alone."""
