"""The narrow waist: a network of stations and gates, checked before it runs, and its builder."""
