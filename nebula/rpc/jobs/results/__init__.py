"""Results that are tables: read by their service page by page, and put together again by their reader."""
