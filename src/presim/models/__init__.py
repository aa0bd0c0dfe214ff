"""Models as engines serve them: layers by kind, parameters by module, what each layer keeps, and the checkpoint's types."""
