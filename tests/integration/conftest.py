"""Scripts that the tests run are no tests."""

collect_ignore_glob = ["scripts/*"]
