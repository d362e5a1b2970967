"""The operators, by what they are about."""
