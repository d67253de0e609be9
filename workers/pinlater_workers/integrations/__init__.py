"""Middleware and helpers for other products: a module each, and only that module needs the product's package."""
