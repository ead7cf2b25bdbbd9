"""What the two notebooks would skip or both need; each module is named by its content."""
