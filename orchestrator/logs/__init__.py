"""Log files of the ranks: names, and bytes to lines."""
