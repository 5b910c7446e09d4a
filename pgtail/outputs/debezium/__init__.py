"""`-o debezium`: the events of Debezium's PostgreSQL connector."""
