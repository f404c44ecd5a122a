"""Commands about parts and servers: catalog, describe, lab."""
