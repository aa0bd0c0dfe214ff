"""Price the best plans of a search from captures of a framework's own trainer."""
