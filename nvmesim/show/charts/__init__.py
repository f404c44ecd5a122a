"""Charts (Altair), readable in grey and without a network."""
