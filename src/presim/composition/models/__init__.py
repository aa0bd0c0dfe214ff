"""Models as engines serve them: layers by kind, parameters by module, and the types of a checkpoint's weights."""
