"""What measurements say: captures, fits, published sets."""
