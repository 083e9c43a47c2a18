"""What a folder holds, and how it gets to a host and back."""
