"""Files and arguments of trainers other than Megatron-LM's, as models with plans (`presim compose --from`)."""
