"""Your own files: pictures, tables and arrays."""
