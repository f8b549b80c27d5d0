"""Week 8, positions in production: what students get wrong, and right in other ways."""
