"""Dunning: an agent that charges overdue invoices through a bank that counts every effect."""
