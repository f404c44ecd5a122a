"""What a person moves: sliders in a notebook."""
