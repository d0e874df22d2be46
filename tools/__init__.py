"""What stands around the pipeline: the command line, training, benches."""
