"""What a search begins with: cuts that a dynamic programme places, and other models' decisions."""
