"""Programs that generate data for tests and documentation; no test runs them."""
