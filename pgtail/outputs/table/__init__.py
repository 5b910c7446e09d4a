"""`-o table`: transactions as tables for people."""
