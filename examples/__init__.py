"""Runnable examples: each package here is a whole program that uses Outlive from outside."""
