"""One file for each step from a version of the schema to the next; a file is never changed once it was released."""
