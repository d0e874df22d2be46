"""Hosting a model: the engine, the socket, the gateway."""
