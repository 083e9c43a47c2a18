"""Who failed first, and who only followed."""
