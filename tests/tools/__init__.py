"""Programs that make what the tests use; none of them runs in a test."""
