"""Plans of Megatron's family: what its options, releases and published set-ups make of a case."""
