"""The questions of the book, as views of `lastwords.sql`."""
