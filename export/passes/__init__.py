"""What is done to a graph between the model's page and the artifact: one small file a pass."""
